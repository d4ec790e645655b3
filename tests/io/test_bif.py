"""BIF and XMLBIF: what is read and refused, where, and that writing gives back what was read."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import logging
import lzma
import math
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmix.errors import FormatError, ModelError, ResourceError
from fastmix.io import read_network
from fastmix.io.bif import is_bif, parse_bif, write_bif
from fastmix.model.network import BayesianNetwork
from oracle.bif import format_bif

# Variables, arcs and table entries of the files of the shared data; the reader of pgmpy finds the same tables.
SHARED = {
    "alarm": (37, 46, 752),
    "asia": (8, 8, 36),
    "cancer": (5, 4, 20),
    "child": (20, 25, 344),
    "earthquake": (5, 4, 20),
    "hailfinder": (56, 66, 3741),
    "hepar2": (70, 123, 2139),
    "insurance": (27, 52, 1419),
    "munin1": (186, 273, 19226),
    "sachs": (11, 17, 267),
    "survey": (6, 6, 37),
    "win95pts": (76, 112, 1148),
}

HEAD = """network n {
}
variable a {
  type discrete [ 2 ] { s, t };
}
variable b {
  type discrete [ 3 ] { x, y, z };
}
probability ( a ) {
  table 0.4, 0.6;
}
"""
ROWS = "  (s) 0.1, 0.2, 0.7;\n  (t) 0.3, 0.3, 0.4;\n"


def net(body: str, scope: str = "b | a") -> str:
    """A file whose second table begins in line 12, with a body from line 13 on."""
    return f"{HEAD}probability ( {scope} ) {{\n{body}}}\n"


def table_of(text: str, name: str = "b") -> list:
    network = parse_bif(text)
    return network.tables[network.variable_names.index(name)].tolist()


class TestReading:
    def test_a_network(self):
        network = parse_bif(net(ROWS))
        assert network.name == "n"
        assert network.variable_names == ("a", "b")
        assert network.state_names == (("s", "t"), ("x", "y", "z"))
        assert network.parents == ((), (0,))
        assert network.tables[0].tolist() == [0.4, 0.6]
        assert network.tables[1].tolist() == [[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]

    @pytest.mark.parametrize(
        "body",
        [
            "(t) 0.3, 0.3, 0.4; (s) 0.1, 0.2, 0.7;",
            "(s) 0.1 0.2 0.7; (t) 0.3 0.3 0.4;",
            "default 0.1, 0.2, 0.7; (t) 0.3, 0.3, 0.4;",
            "(t) 0.3, 0.3, 0.4; default 0.1, 0.2, 0.7;",
            "table 0.1, 0.3, 0.2, 0.3, 0.7, 0.4;",
            '("s") 1e-1, 2.0E-1, +.7; // ("t")\n /* (s) 1, 0, 0; */ (t) 3e-1, 00.3, 4.0e-01;',
            "property why = not; (s) 0.1, 0.2, 0.7; property; (t) 0.3, 0.3, 0.4;".replace("property;", "property ;"),
        ],
    )
    def test_the_same_table(self, body):
        assert table_of(net(body)) == [[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]

    @pytest.mark.parametrize("scope", ["b|a", "b a", "b, a", '"b" | "a"', "b /* of */ | // it\n a"])
    def test_the_same_scope(self, scope):
        assert parse_bif(net(ROWS, scope)) == parse_bif(net(ROWS))

    def test_the_order_of_a_table_with_two_parents(self):
        """As JavaBayes writes its example: the child's state changes slowest, the last parent's fastest."""
        text = """
        variable family { type discrete[2] { "true" "false" }; }
        variable bowel { type discrete[2] { "true" "false" }; }
        variable "dog-out" { type discrete[2] { "true" "false" }; }
        probability ( "dog-out" bowel family ) { table 0.99 0.97 0.9 0.3 0.01 0.03 0.1 0.7 ; }
        probability ( bowel ) { table 0.01 0.99 ; }
        probability ( family ) { table 0.15 0.85 ; }
        """
        network = parse_bif(text)
        assert network.parents[2] == (1, 0)
        assert network.tables[2][..., 0].tolist() == [[0.99, 0.97], [0.9, 0.3]]

    def test_rows_of_two_parents(self):
        body = "".join(f"({s}, {x}) {p}, {1 - p};" for s, x, p in [("t", "z", 0.5), ("s", "y", 0.25), ("s", "x", 0.0)])
        text = (
            net(ROWS)
            + "variable c { type discrete [2] { p, q }; } probability (c | a, b) { default 1, 0; "
            + body
            + "}"
        )
        assert np.array(table_of(text, "c"))[..., 0].tolist() == [[0.0, 0.25, 1.0], [1.0, 1.0, 0.5]]

    def test_blocks_in_any_order(self):
        first, second = HEAD.split("variable b")
        text = f"probability (b | a) {{ {ROWS} }} variable b{second}{first}"
        network = parse_bif(text)
        assert network.variable_names == ("b", "a")
        assert network.parents == ((1,), ())

    def test_names_with_signs(self):
        names = [
            "<7.5",
            ">=7.5",
            "5-12",
            "12+",
            "Asy/Patch",
            "Transp.",
            "50%",
            "a'b",
            "é",
            "#1",
            "property_of",
            "a:b=c",
        ]
        text = f"variable x {{ type discrete [{len(names)}] {{ {', '.join(names)} }}; }} probability (x) {{ table "
        text += ", ".join(["1"] + ["0"] * (len(names) - 1)) + "; }"
        assert parse_bif(text).state_names == (tuple(names),)

    def test_quoted_names(self):
        name = '"a (b), {c}; // d"'
        text = f'variable {name} {{ type discrete [1] {{ "property x;" }}; }} probability ({name}) {{ table 1; }}'
        network = parse_bif(text)
        assert network.variable_names == ("a (b), {c}; // d",)
        assert network.state_names == (("property x;",),)

    def test_properties_are_passed_over(self):
        text = (
            'network "n" { property author = "x {"; property \n two; }'
            + HEAD.partition("}")[2]
            + ("probability (b | a) { property shape {1}; default 0.1 0.2 0.7; property http://x.org/*; }")
        )
        text = text.replace("{ s, t };", "{ s, t }; property position = (1, 2) ;")
        assert parse_bif(text) == parse_bif(net("default 0.1 0.2 0.7;"))

    def test_line_ends_and_marks(self):
        network = parse_bif(net(ROWS))
        text = net(ROWS).replace("(t)", "// comment\n(t)")
        for end in ("\r\n", "\r"):
            assert parse_bif(text.replace("\n", end)) == network
            assert parse_bif(b"\xef\xbb\xbf" + text.replace("\n", end).encode()) == network

    def test_rounded_rows(self):
        row = table_of(net("default 0.3333, 0.3333, 0.3333;"))[0]
        assert row == pytest.approx([1 / 3] * 3, rel=1e-15)
        assert table_of(net("default 1e-999, 0.5, 0.5;"))[0] == [0.0, 0.5, 0.5]

    def test_compressed_files(self, tmp_path):
        text = net(ROWS).encode()
        for name, data in (("a.bif", text), ("a.bif.gz", gzip.compress(text)), ("a.bif.xz", lzma.compress(text))):
            (tmp_path / name).write_bytes(data)
            assert read_network(tmp_path / name) == parse_bif(text)
        with pytest.raises(ResourceError, match="holds more than"):
            read_network(tmp_path / "a.bif.gz", max_bytes=100)
        with pytest.raises(OSError, match="none"):
            read_network(tmp_path / "none.bif")

    def test_sniffing(self):
        assert is_bif(net(ROWS).encode())
        assert is_bif(b"\xef\xbb\xbf/* a */ // b\r\n variable x {")
        for other in (b"", b"MARKOV 1 2 0", b"BAYES", b"<BIF>", b"PK\x03\x04", b"networks", b"/* network x {"):
            assert not is_bif(other)


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "line", "message"),
        [
            ("", 1, "the file is empty"),
            ("\n// nothing\n", 1, "the file is empty"),
            ("MARKOV 2", 1, "expected 'network', 'variable' or 'probability', got 'MARKOV'"),
            (HEAD + "network m {}", 12, "a file must hold one network, got a second"),
            ("network n {", 1, "the file ends where '}' was expected"),
            ("network n {\n variable a {", 2, "expected '}', got 'variable'"),
            ("network n { property x }\nvariable a { type discrete [1] {s}; }", 1, "a property must end in ';'"),
            ("network n {} /* a\n b", 1, "a comment must end in '*/', got '/* a\\n b'"),
            (HEAD + "/*/", 12, "a comment must end in '*/'"),
            ('network "n\n {}', 1, "in quotes must end on its line, got '\"n'"),
            ("variable", 1, "the file ends where the name of a variable was expected"),
            ('variable "" { type discrete [1] {s}; }', 1, "expected the name of a variable, got '\"\"'"),
            ("variable a\x01 { type discrete [1] {s}; }", 1, r"expected the name of a variable, got 'a\x01'"),
            (HEAD + "variable a { type discrete [1] { s }; }", 12, "must be declared once, got 'a' again"),
            ("variable a { type continuous; }", 1, "expected 'discrete', got 'continuous'"),
            ("variable a { type discrete [two] { s, t }; }", 1, "as many states as it lists, 2, got 'two'"),
            ("variable a { type discrete [3] { s, t }; }", 1, "as many states as it lists, 2, got '3'"),
            ("variable a { type discrete [0] { }; }", 1, "variable 'a' must have at least one state, got none"),
            ("variable a { type discrete [2] { s,\n s }; }", 2, "must all be different, got 's' again"),
            ("variable a { type discrete [3] { s, t,\n s }; }", 2, "must all be different, got 's' again"),
            ("variable a { property x; }", 1, "expected 'type', got '}'"),
            (HEAD, 6, "expected a table for each variable, got none for 'b'"),
            (net(ROWS, "b | c"), 12, "expected the name of a declared variable, got 'c'"),
            (net(ROWS, "c | a"), 12, "expected the name of a declared variable, got 'c'"),
            (net(ROWS, "b | a, a"), 12, "must name each variable once, got 'a'"),
            (net(ROWS, "b | b"), 12, "must name each variable once, got 'b'"),
            (net(ROWS, "a, b | a"), 12, "expected the name of a variable, got '|'"),
            (net(ROWS, ""), 12, "expected the name of a variable, got ')'"),
            (net(ROWS) + net(ROWS)[len(HEAD) :], 16, "each variable must have one table, got a second for 'b'"),
            (net(""), 12, "expected all 2 rows of 'b', got none for (s)"),
            (net("  (s) 0.1, 0.2, 0.7;\n"), 12, "expected all 2 rows of 'b', got none for (t)"),
            (
                net(ROWS + "  (s) 1, 0, 0;\n"),
                15,
                "'b' must have one table, or each row once and one default, got '( s )' too",
            ),
            (net(ROWS + "  (u) 1, 0, 0;\n"), 15, "expected a state of 'a', got 'u'"),
            (net(ROWS + "  (s, s) 1, 0, 0;\n"), 15, "must name the states of 1 parents, got 2"),
            (net("  (s) 0.1, 0.9;\n"), 13, "expected 3 probabilities of 'b', got 2"),
            (net("  (s) 0.1, 0.2, 0.7\n  (t) 0.3, 0.3, 0.4;\n"), 13, "expected 3 probabilities of 'b', got 9"),
            (net("  (s) 0.1 0.2 0.7\n"), 13, "expected ';' at the end of the probabilities"),
            (net("\n  (s 0.1, 0.2, 0.7;\n"), 14, "expected ')' at the end of the row"),
            (net("  table 0.5, 0.5;\n"), 13, "expected 6 probabilities of 'b', got 2"),
            (
                net("  table 1,1,0,0,0,0;\n  default 1,0,0;\n"),
                14,
                "one default, got 'default' too",
            ),
            (net("  table 1,1,0,0,0,0;\n  (s) 1,0,0;\n"), 14, "one default, got '( s )' too"),
            (net("  default 1,0,0;\n\n  default 1,0,0;\n"), 15, "one default, got 'default' too"),
            (net("  noisy-or 1;\n"), 13, "expected 'table', 'default' or a row such as '(', got 'noisy-or'"),
            (
                net("  (s) 0.1, x, 0.7;\n" + ROWS[22:]),
                13,
                "a probability of 'b' must be a finite number of at least 0, got 'x'",
            ),
            (net(ROWS.replace("0.4", "\n 1_0")), 15, "must be a finite number of at least 0, got '1_0'"),
            (net(ROWS.replace("0.4", "nan")), 14, "must be a finite number of at least 0, got 'nan'"),
            (net(ROWS.replace("0.4", '"0.4"')), 14, "must be a finite number of at least 0, got '\"0.4\"'"),
            (net(ROWS.replace("0.4", "-0.4")), 14, "must be a finite number of at least 0, got '-0.4'"),
            (net(ROWS.replace("0.4", "1e999")), 14, "must be a finite number of at least 0, got '1e999'"),
            (net(ROWS.replace("0.4", "0.41")), 14, "of 'b' for (t) must sum to 1 within 1e-4, got 1.01"),
            (net("default 0.5, 0.6, 0; (s) 1, 0, 0;"), 13, "of 'b' for (t) must sum to 1"),
            (
                net("table 0.1, 0.2, 0.7,\n 0.3, 0.3, 0.4;"),
                13,
                "of 'b' for (s) must sum to 1 within 1e-4, got 1.1",
            ),
            (net(ROWS).replace("0.4, 0.6", "0.3333, 0.6665"), 10, "the probabilities of 'a' must sum to 1"),
            (
                net(ROWS).replace("( a ) {\n  table", "( a | b ) {\n  default"),
                9,
                "parents must not form a cycle, got 'a -> b -> a'",
            ),
        ],
    )
    def test_with_its_place(self, text, line, message):
        with pytest.raises(FormatError) as caught:
            parse_bif(text, "f.bif")
        assert str(caught.value).startswith(f"f.bif:{line}: ")
        assert message in str(caught.value)

    def test_no_text(self):
        with pytest.raises(FormatError, match=r"^f\.bif:2: .*0xe9"):
            parse_bif(b"network n {}\nvariable caf\xe9", "f.bif")

    def test_long_words_are_cut(self):
        with pytest.raises(FormatError) as caught:
            parse_bif("x" * 10**6, "f.bif")
        assert len(str(caught.value)) < 200

    def test_tables_too_large_to_hold(self):
        variables = "".join(f"variable v{i} {{ type discrete [10] {{ 0 1 2 3 4 5 6 7 8 9 }}; }}\n" for i in range(31))
        text = f"{variables}probability (v0 | {', '.join(f'v{i}' for i in range(1, 31))}) {{ default {'0.1 ' * 10}; }}"
        before = time.perf_counter()
        with pytest.raises(ResourceError, match=r"^f\.bif: .*'v0', 10{30} "):
            parse_bif(text, "f.bif")
        assert time.perf_counter() - before < 5

    def test_too_many_parents(self):
        variables = "".join(f"variable v{i} {{ type discrete [1] {{ s }}; }}\n" for i in range(33))
        text = f"{variables}probability (v0 | {', '.join(f'v{i}' for i in range(1, 33))}) {{ default 1; }}"
        with pytest.raises(FormatError, match=r":34: 'v0' .*\b31 .*32$"):
            parse_bif(text)


@pytest.mark.parametrize(
    "piece",
    [
        "/*",
        "property x ",
        '"',
        "a/",
        "(",
        "{",
        "probability (a ",
        "variable a {",
        "property",
        "// ",
        ", ",
        "/",
        "[ ",
        "\n",
    ],
)
def test_time_is_linear(piece):
    """Many pieces: a reader that looks at all that follows for each of them would take minutes."""
    many = piece * 30_000
    for text in (many, HEAD + many, net(ROWS + many)):
        before = time.process_time()
        with contextlib.suppress(FormatError):
            parse_bif(text)
        is_bif(text.encode())
        assert time.process_time() - before < 2.5


def test_many_rows_are_read_in_linear_time():
    """A reader that looks at all rows before for each of them took 10 s for as many."""
    names = [f"p{k}" for k in range(14)]
    variables = "".join(f"variable {name} {{ type discrete [2] {{ s, t }}; }}\n" for name in [*names, "c"])
    tables = "".join(f"probability ( {name} ) {{ table 0.5, 0.5; }}\n" for name in names)
    rows = "".join(f"({', '.join(row)}) 0.25, 0.75;\n" for row in itertools.product("st", repeat=14))
    before = time.process_time()
    network = parse_bif(f"{variables}{tables}probability ( c | {', '.join(names)} ) {{ {rows} }}")
    assert time.process_time() - before < 4.0
    assert network.tables[-1].size == 2**15


class TestWriting:
    def test_text(self):
        assert format_bif(parse_bif(net(ROWS))) == net(ROWS)

    def test_exactly(self, tmp_path):
        rng = np.random.default_rng(3)
        table = rng.dirichlet(np.full(7, 0.1), size=(3, 2))
        network = BayesianNetwork(
            ["a", "b", "c"],
            [["x", "y", "z"], ["s", "t"], list("abcdefg")],
            [[], [], [0, 1]],
            [[1e-300, 0.5, 0.5], [1 / 3, 2 / 3], table],
            name="Net",
        )
        for name in ("a.bif", "a.bif.gz", "a.bif.xz"):
            assert write_bif(network, tmp_path / name) == []
            assert read_network(tmp_path / name) == network
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.bif", "a.bif.gz", "a.bif.xz"]

    @given(
        st.lists(
            st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\u2028\u2029'), min_size=1),
            min_size=3,
            max_size=6,
            unique=True,
        )
    )
    def test_any_names(self, names):
        network = BayesianNetwork(names[:1], [names[1:]], [[]], [[1.0] + [0.0] * (len(names) - 2)], name=names[0])
        logging.disable(logging.WARNING)
        try:
            assert parse_bif(format_bif(network)) == network
        finally:
            logging.disable(logging.NOTSET)

    @pytest.mark.parametrize(
        "word", ["network", "variable", "probability", "property", "type", "discrete", "default", "table"]
    )
    def test_keywords_are_quoted(self, word):
        network = BayesianNetwork([word], [[word, "x"]], [[]], [[0.5, 0.5]])
        text = format_bif(network)
        assert f'variable "{word}" {{' in text
        assert parse_bif(text) == network

    def test_notes(self, caplog, tmp_path):
        network = BayesianNetwork(["a b"], [["<5", "table"]], [[]], [[0.5, 0.5]])
        with caplog.at_level(logging.WARNING, logger="fastmix"):
            notes = write_bif(network, tmp_path / "a.bif")
        assert notes == caplog.messages == ["some programs read no names in quotes: 2, such as 'a b'"]
        assert read_network(tmp_path / "a.bif") == network

    @pytest.mark.parametrize("name", ["", 'a"b', "a\nb", "a\tb", "\x00", "\ud800", "\u2028"])
    def test_names_that_cannot_be_written(self, name, tmp_path):
        shown = re.escape(repr(name))
        for names in ([name], ["a"]):
            states = ["s", "t"] if names == [name] else ["s", name]
            with pytest.raises(ModelError, match=f"name .*{shown}$"):
                write_bif(BayesianNetwork(names, [states], [[]], [[0.5, 0.5]]), tmp_path / "a.bif")
        assert not list(tmp_path.iterdir())

    def test_nothing_is_left_of_a_failure(self, tmp_path, monkeypatch):
        path = tmp_path / "a.bif"
        path.write_text("old")

        def fail(_):
            yield "network"
            raise OSError("full")

        monkeypatch.setattr("fastmix.io.bif.bif_chunks", fail)
        with pytest.raises(OSError, match="full"):
            write_bif(parse_bif(net(ROWS)), path)
        assert path.read_text() == "old"
        assert [other.name for other in tmp_path.iterdir()] == ["a.bif"]


# -- the networks of the shared data ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    if not (shared_data / "bif").is_dir():
        pytest.skip("needs the folder bif among the shared data")
    return shared_data / "bif"


def test_no_network_is_left_out(folder):
    assert sorted(path.name.partition(".")[0] for path in folder.glob("*.bif.gz")) == sorted(SHARED)


@pytest.mark.parametrize("name", SHARED)
def test_networks_that_people_use(folder, name):
    path = folder / f"{name}.bif.gz"
    before = time.process_time()
    network = read_network(path)
    assert time.process_time() - before < 1
    assert is_bif(gzip.decompress(path.read_bytes()))
    assert (network.num_variables, sum(map(len, network.parents)), network.num_entries) == SHARED[name]
    for table in network.tables:
        assert np.abs(table.sum(axis=-1) - 1).max() < 1e-14
    assert parse_bif(format_bif(network)) == network
    draws = network.sample(1000, seed=1)
    assert ((draws >= 0) & (draws < network.num_states)).all()
    scopes, log_tables = network.to_factors()
    for scope, table in zip(scopes, log_tables, strict=True):
        assert np.isfinite(table[tuple(draws[:, v] for v in scope)]).all()


def test_marginals_of_asia(folder):
    """By summing over all configurations, against numbers from the literature (P(lung) = 0.055, P(dysp) = 0.436)."""
    network = read_network(folder / "asia.bif.gz")
    scopes, log_tables = network.to_factors()
    operands: list = [item for scope, table in zip(scopes, log_tables, strict=True) for item in (np.exp(table), scope)]
    joint = np.einsum(*operands, list(range(8)))
    assert math.isclose(joint.sum(), 1, rel_tol=1e-12)
    names = network.variable_names
    for name, expected in (("lung", 0.055), ("tub", 0.0104), ("bronc", 0.45), ("dysp", 0.4359706), ("xray", 0.11029)):
        axis = names.index(name)
        marginal = joint.sum(axis=tuple(i for i in range(8) if i != axis))
        assert marginal[network.state_names[axis].index("yes")] == pytest.approx(expected, abs=5e-7)
