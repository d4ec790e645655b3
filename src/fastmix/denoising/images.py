"""Pictures from files and to files, with Pillow (extra ``image``)."""

from __future__ import annotations

import os
import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray
from fastmix._checks import as_list, as_path, check_count, describe, require, show_path
from fastmix.denoising.posterior import as_gray, check_size
from fastmix.denoising.tuning import MAX_PIXELS
from fastmix.errors import FormatError, ResourceError
from fastmix.io.files import atomic_write

if TYPE_CHECKING:
    from fastmix.denoising.denoise import DenoiseResult

__all__ = ["MAX_PIXELS", "PICTURES", "load_image", "parse_size", "resize", "write_comparison", "write_picture"]

#: Ends of the names of pictures.
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
# Formats that are read, by Pillow's names.
_FORMATS = ("PNG", "JPEG", "MPO", "BMP", "DIB", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000", "AVIF")
# Formats whose whole numbers, 32 bits in Pillow, are scaled to 16.
_SIXTEEN_BITS = ("PNG", "PPM")
# White in 16 bits.
_DEEP_WHITE = 65535.0
# Pixels of the comparison: width of a panel at least, between panels, and height of a caption.
_PANEL_WIDTH = 240
_GAP = 12
_CAPTION = 22


def load_image(
    path: str | os.PathLike[str], size: tuple[int, int] | None = None, *, max_pixels: int = MAX_PIXELS
) -> FloatArray:
    """Gray values (rows, cols) from 0 to 1 of an image file.

    Parameters
    ----------
    path : str or path-like
        PNG, JPEG, BMP, GIF, TIFF, WebP, PPM, JPEG 2000 or AVIF; colors become gray, what is transparent white, the
        orientation noted by a camera is applied. Pixels that are floating-point numbers are from 0 to 1.
    size : (int, int), optional
        Width and height of a box, turned upright for an upright picture, that the picture is scaled down to fit,
        keeping its proportions. Full size by default.
    max_pixels : int
        A picture with more, at full size, is refused.

    Raises
    ------
    FormatError
        If it is not an image in one of these formats, or its pixels do not say what is white: whole numbers of 32 bits.
    ResourceError
        If it is too large, at the size asked for, to be denoised in memory.

    Examples
    --------
    >>> import tempfile, PIL.Image
    >>> with tempfile.NamedTemporaryFile(suffix=".png") as file:
    ...     PIL.Image.new("RGB", (300, 200), "white").save(file.name)
    ...     load_image(file.name, size=(120, 80)).shape
    (80, 120)
    """
    image_module = _pillow()
    from PIL import ImageOps, UnidentifiedImageError

    if size is not None:
        sides = as_list("size", size, "a width and a height")
        if len(sides) != 2:
            raise ValueError(f"size must be a width and a height, got {describe(size)}")
        width, height = (check_count("size", side, least=2) for side in sides)
        size = width, height
    path = as_path("path", path)
    max_pixels = check_count("max_pixels", max_pixels, least=1)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: no such file")
    try:
        with warnings.catch_warnings(), image_module.open(path, formats=_open_formats()) as image:
            warnings.simplefilter("ignore", image_module.DecompressionBombWarning)  # the size is judged here
            width, height = image.size
            if size is None:
                if width * height > max_pixels:
                    raise ResourceError(
                        f"{path}: {width}x{height} pixels are over the limit of {max_pixels:,} (max_pixels); give a "
                        "size to scale it down to, or a larger limit"
                    )
                check_size(height, width)
            else:  # a JPEG is decoded at a fraction of its size where that is enough
                image.draft("L", _turned(size, width, height))
            gray = _gray(ImageOps.exif_transpose(image), image.format)
    except (UnidentifiedImageError, image_module.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        reason = str(error)
        if isinstance(error, UnidentifiedImageError):
            reason = "not an image that can be read"
        elif isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        raise FormatError(f"{path}: {reason}") from error
    if size is None:
        return gray
    rows, cols = gray.shape
    width, height = _turned(size, cols, rows)
    factor = min(1.0, width / cols, height / rows)
    return resize(gray, max(1, round(factor * rows)), max(1, round(factor * cols)))


def resize(image: FloatArray, rows: int, cols: int) -> FloatArray:
    """An image scaled by averaging over the area of each new pixel."""
    if image.shape == (rows, cols):
        return image
    image_module = _pillow()
    source = image_module.fromarray(image.astype(np.float32))
    scaled = source.resize((cols, rows), image_module.Resampling.BOX)
    return np.clip(np.asarray(scaled, dtype=np.float64), image.min(), image.max())


def parse_size(text: str) -> tuple[int, int]:
    """Width and height from text such as ``120x80``.

    Examples
    --------
    >>> parse_size("120x80")
    (120, 80)
    """
    if not isinstance(text, str):
        raise ValueError(f"text must be a size such as 120x80, got {describe(text)}")
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*[xX×]\s*([0-9]{1,9})\s*", text)
    size = (int(match[1]), int(match[2])) if match else (0, 0)
    if min(size) < 2:
        raise ValueError(f"size must be WIDTHxHEIGHT, such as 120x80, each at least 2, got text {describe(text)}")
    return size


def write_comparison(result: DenoiseResult, path: str | os.PathLike[str], *, original: ArrayLike | None = None) -> None:
    """Write a picture of what went in and what came out, side by side.

    From left to right: the clean picture where it is known, the noisy one, for two labels the probability of white, and
    the restored picture; enlarged by whole factors if small.

    Parameters
    ----------
    result : DenoiseResult
    path : str or path-like
        The suffix sets the format: ``.png``, ``.jpg`` and others that Pillow writes; a :class:`ValueError` if none.
    original : float array (rows, cols), optional
        The clean picture, where it is known.
    """
    _check_result(result)
    path = as_path("path", path)
    kind = _picture_kind(path)
    panels: list[tuple[str, Any]] = [("noisy", result.observed), ("denoised", result.picture)]
    if len(result.levels) == 2:
        panels[1:] = [("probability of white", result.marginals), ("denoised", result.picture)]
    known = result.clean if original is None else as_gray(original, "original")
    if known is not None and known.shape != result.observed.shape:
        raise ValueError(f"original must have the shape of the result, {result.observed.shape}, got {known.shape}")
    if known is not None:
        panels.insert(0, ("clean", known))
    with atomic_write(path, binary=True) as stream:
        _sheet(panels).save(stream, format=kind)


def write_picture(result: DenoiseResult, path: str | os.PathLike[str]) -> None:
    """Write the restored picture alone, at the size of the one that went in; the suffix sets the format."""
    _check_result(result)
    path = as_path("path", path)
    kind = _picture_kind(path)
    with atomic_write(path, binary=True) as stream:
        _pillow().fromarray(_pixels(result.picture)).save(stream, format=kind)


def _picture_kind(path: str) -> str:
    """Pillow's name of the format that the end of a file's name chooses."""
    image_module = _pillow()
    suffix = os.path.splitext(path)[1].lower()
    kind = image_module.registered_extensions().get(suffix)
    if kind is None or kind not in image_module.SAVE:
        raise ValueError(f"path must end in .png or that of another image format, got {show_path(path)}")
    return str(kind)


def _pixels(values: Any) -> NDArray[np.uint8]:
    """Gray values from 0 to 1 as whole numbers of 8 bits."""
    return np.round(255.0 * np.asarray(values, dtype=np.float64)).astype(np.uint8)


def _sheet(panels: list[tuple[str, Any]]) -> Any:
    """Panels side by side, with their titles below, as a picture of Pillow."""
    from PIL import ImageDraw, ImageFont

    image_module = _pillow()
    rows, cols = panels[0][1].shape
    factor = max(1, -(-_PANEL_WIDTH // cols))
    width = factor * cols
    height = factor * rows
    sheet = image_module.new("L", (len(panels) * (width + _GAP) + _GAP, height + _GAP + _CAPTION + _GAP), 255)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=14)
    for k, (title, values) in enumerate(panels):
        pixels = _pixels(values)
        enlarged = np.repeat(np.repeat(pixels, factor, axis=0), factor, axis=1)
        left = _GAP + k * (width + _GAP)
        sheet.paste(image_module.fromarray(enlarged), (left, _GAP))
        draw.text((left + width / 2, _GAP + height + _CAPTION / 2 + 2), title, fill=0, font=font, anchor="mm")
    return sheet


def _pillow() -> Any:
    """The module of Pillow that opens and makes pictures; an ImportError with a way out where there is none."""
    return require("PIL.Image", extra="image", purpose="pictures", library="Pillow")


def _open_formats() -> list[str]:
    """The formats that are read, by Pillow's names, those of them that it has.

    Some of the others hand the file to another program: what claims to be a picture must not choose one.
    """
    image_module = _pillow()
    image_module.init()
    return [name for name in _FORMATS if name in image_module.OPEN]


def _gray(image: Any, kind: str | None) -> FloatArray:
    """Gray values from 0 to 1; ``kind`` is the format of the file. A ValueError where it is not known what is white."""
    if image.mode in ("I", "F") or image.mode.startswith("I;"):  # more than 8 bits: Pillow would cut them off
        return as_gray(_deep_gray(image, kind))
    if "A" in image.mode or "transparency" in image.info:
        white = _pillow().new("RGBA", image.size, "white")
        image = _pillow().alpha_composite(white, image.convert("RGBA"))
    return as_gray(np.asarray(image.convert("L")))


def _deep_gray(image: Any, kind: str | None) -> FloatArray:
    """The pixels of a picture of 16 bits, or of floating-point numbers, from 0 to 1."""
    values = np.asarray(image, dtype=np.float64)
    if image.mode == "F":
        if not ((values >= 0.0) & (values <= 1.0)).all():
            raise ValueError(
                f"pixels that are floating-point numbers must be from 0 (black) to 1 (white), got {values.min():g} to "
                f"{values.max():g}; scale them"
            )
        return values
    if image.mode == "I" and kind not in _SIXTEEN_BITS:
        raise ValueError(
            "pixels of 32 bits, or with a sign, do not say what is white; save the picture with 8 or 16 bits, or as "
            "floating-point numbers from 0 to 1"
        )
    clear = image.info.get("transparency")
    return np.where(values == clear, 1.0, values / _DEEP_WHITE) if isinstance(clear, int) else values / _DEEP_WHITE


def _turned(size: tuple[int, int], width: int, height: int) -> tuple[int, int]:
    """The width and height of a box, turned upright for an upright picture."""
    long = max(size)
    short = min(size)
    return (long, short) if width >= height else (short, long)


def _check_result(result: Any) -> None:
    """A TypeError for what :func:`fastmix.denoising.denoise` does not give."""
    if not all(hasattr(result, name) for name in ("picture", "observed", "labels")):
        raise TypeError(f"result must be what denoise gives, got {describe(result)}")
