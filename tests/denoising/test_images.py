"""Pictures as files, denoised."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from test_denoise import PIL, half

from fastmix import _memory
from fastmix.denoising import (
    denoise,
    load_image,
    parse_size,
    write_comparison,
    write_picture,
)
from fastmix.denoising.images import resize
from fastmix.errors import FormatError, ResourceError

# -- files ----------------------------------------------------------------------------------------------------------


def test_images_of_all_modes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    gray = rng.integers(0, 256, size=(20, 30), dtype=np.uint8)
    for mode in ("L", "RGB", "RGBA", "P", "1", "LA"):
        path = tmp_path / f"{mode}.png"
        PIL.fromarray(gray).convert(mode).save(path)
        image = load_image(path)
        assert image.shape == (20, 30)
        if mode in ("L", "RGB", "RGBA", "LA"):
            np.testing.assert_allclose(image, gray / 255.0, atol=2 / 255)
    PIL.fromarray(gray.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    np.testing.assert_allclose(load_image(tmp_path / "deep.png"), gray / 255.0, atol=1e-6)


def written(path: Path, values: np.ndarray, mode: str | None = None) -> Path:
    PIL.fromarray(values, mode=mode).save(path) if mode else PIL.fromarray(values).save(path)
    return path


@pytest.mark.parametrize("seed", range(5))
def test_deep_pixels_are_right_or_refused(tmp_path: Path, seed: int) -> None:
    """Whatever the type of the numbers: never black or white in silence where they are neither."""
    rng = np.random.default_rng(seed)
    gray = rng.random((9, 7))
    deep = np.round(gray * 65535).astype(np.uint16)
    for suffix in ("png", "tif", "ppm"):
        path = tmp_path / f"a.{suffix}"
        if suffix == "ppm":
            path.write_bytes(b"P5 7 9 65535\n" + deep.astype(">u2").tobytes())
        else:
            written(path, deep)
        np.testing.assert_allclose(load_image(path), gray, atol=1e-4)
    np.testing.assert_allclose(load_image(written(tmp_path / "f.tif", gray.astype(np.float32))), gray, atol=1e-6)
    for scale in (3.0, 255.0, 1e6, -1.0):
        with pytest.raises(FormatError, match=r"f\.tif: .* 0 \(black\) to 1"):
            load_image(written(tmp_path / "f.tif", (scale * (gray + 0.5)).astype(np.float32)))
    for most in (200, 2**16 - 1, 2**20, 2**31 - 1):
        whole = (gray * most).astype(np.int32)
        with pytest.raises(FormatError, match=r"i\.tif: .* white"):
            load_image(written(tmp_path / "i.tif", whole))
    half_clear = np.full((4, 4, 4), 200, dtype=np.uint8)
    half_clear[..., 3] = 255
    half_clear[:2, :, 3] = 0
    image = load_image(written(tmp_path / "clear.png", half_clear))
    np.testing.assert_allclose(image[:2], 1.0)
    np.testing.assert_allclose(image[2:], 200 / 255, atol=1e-9)
    palette = PIL.fromarray(rng.integers(0, 4, (6, 6), dtype=np.uint8), mode="P")
    palette.putpalette([10, 10, 10, 240, 240, 240, 100, 100, 100, 0, 0, 0] + [0] * 756)
    palette.save(tmp_path / "p.png")
    np.testing.assert_allclose(
        load_image(tmp_path / "p.png"), np.array([10, 240, 100, 0])[np.asarray(palette)] / 255, atol=1e-9
    )


def test_a_picture_does_not_choose_who_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An EPS is handed to Ghostscript by Pillow, whatever the file is called."""
    pytest.importorskip("PIL.EpsImagePlugin").Ghostscript = None

    def never(*_: object, **__: object) -> None:
        raise AssertionError("Ghostscript")

    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", never)
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 20 20\n%%EndComments\n0 0 20 20 rectfill\n%%EOF\n"
    for name in ("a.eps", "a.png", "a.tif"):
        (tmp_path / name).write_bytes(eps)
        with pytest.raises(FormatError, match="not an image"):
            load_image(tmp_path / name)


def test_orientation_of_the_camera_is_applied(tmp_path: Path) -> None:
    image = PIL.new("L", (30, 20))
    exif = image.getexif()
    exif[0x0112] = 6  # turned by 90 degrees
    image.save(tmp_path / "turned.jpg", exif=exif)
    assert load_image(tmp_path / "turned.jpg").shape == (30, 20)
    assert load_image(tmp_path / "turned.jpg", size=(15, 10)).shape == (15, 10)


@pytest.mark.parametrize(
    ("shape", "expected"), [((481, 321), (80, 120)), ((321, 481), (120, 80)), ((60, 40), (40, 60))]
)
def test_size_is_a_box_that_turns(tmp_path: Path, shape: tuple[int, int], expected: tuple[int, int]) -> None:
    PIL.new("RGB", shape, "gray").save(tmp_path / "a.jpg")
    assert load_image(tmp_path / "a.jpg", size=(120, 80)).shape == expected


def test_scaling_averages_areas() -> None:
    image = np.kron(np.array([[0.0, 1.0], [0.25, 0.5]]), np.ones((5, 7)))
    np.testing.assert_allclose(resize(image, 2, 2), [[0.0, 1.0], [0.25, 0.5]], atol=1e-6)
    assert resize(image, 10, 14) is image


def test_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.png: "):
        load_image(tmp_path / "none.png")
    (tmp_path / "text.png").write_text("this is no image")
    with pytest.raises(FormatError, match=r"text\.png: "):
        load_image(tmp_path / "text.png")
    PIL.new("L", (50, 50)).save(tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:60])
    with pytest.raises(FormatError, match=r"cut\.png: "):
        load_image(tmp_path / "cut.png")
    PIL.new("L", (1, 1)).save(tmp_path / "dot.png")
    with pytest.raises(FormatError, match=r"dot\.png: image "):
        load_image(tmp_path / "dot.png")
    with pytest.raises(FormatError):
        load_image(tmp_path)


def test_huge_files_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PIL.new("1", (400, 300)).save(tmp_path / "large.png")
    monkeypatch.setattr(_memory, "available_memory", lambda: 2e7)
    with pytest.raises(ResourceError, match="400x300 pixels needs"):
        load_image(tmp_path / "large.png")
    assert load_image(tmp_path / "large.png", size=(40, 30)).shape == (30, 40)  # small enough when scaled down
    monkeypatch.setattr(PIL, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(FormatError, match=r"large\.png: .*2000 "):
        load_image(tmp_path / "large.png", size=(40, 30))


def test_sizes_from_text() -> None:
    assert parse_size(" 481 X 321 ") == (481, 321)
    for text in ("", "120", "120x", "1x5", "-3x4", "axb"):
        with pytest.raises(ValueError, match=r"^size .*WIDTHxHEIGHT"):
            parse_size(text)
    with pytest.raises(ValueError, match=r"^size .*got 1$"):
        load_image("any.png", size=(1, 5))


def test_comparison_shows_all_panels(tmp_path: Path) -> None:
    result = denoise(half(), noise=4.0, data_weight=1.0, seed=1)
    write_comparison(result, tmp_path / "out.png")
    sheet = np.asarray(PIL.open(tmp_path / "out.png"))
    factor = 240 // 16
    assert sheet.shape == (12 * factor + 12 + 22 + 12, 4 * (16 * factor + 12) + 12)
    clean = sheet[12 : 12 + 12 * factor, 12 : 12 + 16 * factor][::factor, ::factor]
    np.testing.assert_array_equal(clean > 127, result.clean)
    write_comparison(denoise(half(), noise=None, seed=1), tmp_path / "three.jpg")
    assert np.asarray(PIL.open(tmp_path / "three.jpg")).shape[1] == 3 * (16 * factor + 12) + 12
    with pytest.raises(ValueError, match=r"^path .*\.png.*out\.text"):
        write_comparison(result, tmp_path / "out.text")


def test_the_picture_alone(tmp_path: Path) -> None:
    result = denoise(half(), seed=1)
    write_picture(result, tmp_path / "out.png")
    np.testing.assert_array_equal(np.asarray(PIL.open(tmp_path / "out.png")), np.round(255 * result.picture))
    PIL.new("L", (60, 50)).save(tmp_path / "large.png")
    with pytest.raises(ResourceError, match=r"large\.png: 60x50 .*1,000"):
        load_image(tmp_path / "large.png", max_pixels=1000)
    assert load_image(tmp_path / "large.png", size=(30, 25), max_pixels=1000).shape == (25, 30)


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"Pillow.*\[image\]"):
        load_image("any.png")


@pytest.mark.slow
def test_a_photograph_in_seconds(shared_data: Path) -> None:
    path = sorted((shared_data / "bsds").glob("*.jpg"))[5]
    result = denoise(load_image(path), noise=1.25, seed=0)
    assert max(result.observed.shape) == 481
    assert result.error_rate is not None
    assert result.error_rate < 0.25
    assert result.stats["seconds"] < 120  # about 10 on two idle cores
