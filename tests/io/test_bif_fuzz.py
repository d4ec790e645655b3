"""Damaged BIF and XMLBIF files: a network or an error of ours, and slow readers agree on which and on the network."""

from __future__ import annotations

import contextlib
import random
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from fuzzing import agree, assert_can_fail, mutate
from hypothesis import given
from hypothesis import strategies as st

from fastmix.errors import FormatError
from fastmix.io.bif import parse_bif
from fastmix.io.xmlbif import parse_xmlbif
from oracle.bif import assert_same, format_bif, read_naive

HAND_WRITTEN = [
    b"""network n {
}
variable a {
  type discrete [ 2 ] { no, yes };
}
variable b {
  type discrete [ 3 ] { <5, 5-12, 12+ };
}
probability ( a ) {
  table 0.25, 0.75;
}
probability ( b | a ) {
  (yes) 1e-1, .2, 0.7;
  (no) 0.3333, 0.3333, 0.3333;
}
""",
    b"""// by hand
network "The dog" { //2 values
 property "credal-set constant 1.1" ;
}
variable "light on" { type discrete[2] { "true" "false" }; property position = (1, 2) ; }
variable x { property a; type discrete[1] { "," } }
probability ( "light on" x ) { property {t} ; table 0.6 0.4 ; }
probability (x) { () 1; }
""",
    b"""variable a { type discrete [2] { s, t }; }
variable b { type discrete [2] { s, t }; }
/* a
 b */ probability (b | a) { default 0.5, 0.5; (t) 0, 1; }
probability (a | ) { table 1.0, 0.0; }
variable c { type discrete [2] { s/t, u }; }
probability (c | b, a) { table 0.1 0.2 0.3 0.4 0.9 0.8 0.7 0.6; }""".replace(b"\n", b"\r\n"),
    b"network x {}",
]
POOL = (
    b'{ } ( ) [ ] , ; | " // /* */ network variable probability property type discrete default table a b c s t no yes '
    b"x 0 1 2 3 0.5 .5 5. 1e-1 -1 nan inf 1e999 1e-999 1_0 0x1 +0.5 -0 unknown \xc3\xa9 \xe9 \x00 \x01 \n \r "
    b'"a" "b" "no" "," "" "s ,, property; property\n 99999999999999999999 4'
).split(b" ")
XML = b"""<?xml version="1.0"?>
<!DOCTYPE BIF [
<!ELEMENT BIF ( NETWORK )*>
<!ATTLIST BIF VERSION CDATA #REQUIRED>
]>
<BIF VERSION="0.3">
<NETWORK>
<NAME>n</NAME>
<!-- two -->
<VARIABLE TYPE="nature">
  <NAME>a</NAME>
  <OUTCOME>no</OUTCOME>
  <OUTCOME>yes</OUTCOME>
  <PROPERTY>position = (1, 2)</PROPERTY>
</VARIABLE>
<VARIABLE>
  <NAME>b</NAME>
  <OUTCOME>s</OUTCOME>
  <OUTCOME>t</OUTCOME>
  <OUTCOME>u</OUTCOME>
</VARIABLE>
<DEFINITION>
  <FOR>a</FOR>
  <TABLE> 0.25 0.75 </TABLE>
</DEFINITION>
<DEFINITION>
  <FOR>b</FOR>
  <GIVEN>a</GIVEN>
  <TABLE>
0.1 0.2 0.7 <!-- no -->
0.3 0.3 0.4
  </TABLE>
</DEFINITION>
</NETWORK>
</BIF>
"""
XML_POOL = (
    (
        b"<NAME> </NAME> <TABLE> </TABLE> <FOR> </FOR> <GIVEN> <OUTCOME> </OUTCOME> <VARIABLE> </VARIABLE> <NETWORK> "
        b"</BIF> <x> <x/> <!-- --> & &amp; &x; &#48; <![CDATA[0.5]]> ]]> < > a b no yes 0.5 1 -1 nan 1e999 \xe9 "
        b'\xc3\xa9 \x00 <!ENTITY|x|"y"> <!DOCTYPE|BIF|SYSTEM|"/etc/passwd"> %x; \n <?p?>'
    )
    .replace(b"|", b"\t")
    .split(b" ")
)


def damage(data: bytes, rng: random.Random, pool: list[bytes]) -> bytes:
    letters = b'0123456789 .-+eE{}()[],;|"/*\n\r\t\x00\xff'
    return mutate(data, rng, pool, words=rb"\s+|[\w.+<>/-]+|[^\s]", letters=letters, mark=b"// ")


def check_agreement(data: bytes) -> bool:
    """Whether both readers accept; an AssertionError if they disagree."""
    network, said = agree(
        lambda: read_naive(data), lambda: parse_bif(data, "f.bif"), assert_same, message=r"f\.bif:\d+: [^\n]+$"
    )
    if network is None:
        assert int(said.split(":")[1]) <= len(re.split(rb"\r\n|\r|\n", data))
        return False
    assert parse_bif(format_bif(network)) == network
    return True


def test_the_check_can_fail(monkeypatch):
    data = HAND_WRITTEN[0]
    wrong = parse_bif(data.replace(b"0.25, 0.75", b"0.26, 0.74"))
    assert_can_fail(check_agreement, data, wrong, "test_bif_fuzz.parse_bif", monkeypatch)


@pytest.mark.parametrize(
    ("each", "seed"), [(200, 200), *(pytest.param(20_000, 20_000 + k, marks=pytest.mark.slow) for k in range(5))]
)
def test_damaged_files(each, seed, tell):
    rng = random.Random(seed)
    accepted = 0
    for data in HAND_WRITTEN:
        assert check_agreement(data)
        for _ in range(each):
            damaged = damage(data, rng, POOL)
            try:
                accepted += check_agreement(damaged)
            except Exception as error:
                raise AssertionError(f"{damaged!r}") from error
    assert 0.1 * each < accepted < 0.5 * each * len(HAND_WRITTEN), accepted  # neither nothing nor everything is damage
    if each > 1000:
        total = each * len(HAND_WRITTEN)
        tell("damaged files", f"BIF, seed {seed}: two readers agree", f"{total} of {total}")


@pytest.mark.parametrize("end", ["property ", "property\n", "} property \n", "property a", "/*", "/* b", "property {;"])
def test_what_does_not_end_is_refused(end):
    text = HAND_WRITTEN[0].decode() + end
    assert not check_agreement(text.encode())
    last_line = text.rstrip().count("\n") + 1
    with pytest.raises(FormatError, match=rf"^f\.bif:{last_line}: "):
        parse_bif(text, "f.bif")


@given(st.lists(st.sampled_from([*POOL, b" ", b"\n"]), max_size=40).map(b" ".join))
def test_heaps_of_words(data):
    check_agreement(data)
    check_agreement(b"variable a { type discrete [1] { x }; } probability (a) { " + data)


@given(st.binary(max_size=60))
def test_any_bytes(data):
    check_agreement(data)
    with contextlib.suppress(FormatError):
        parse_xmlbif(data)


def tree_tables(data: bytes) -> dict[str, np.ndarray]:
    """The tables by name, as the parser of the standard library sees them."""
    root = ElementTree.fromstring(data)
    counts = {v.findtext("NAME").strip(): len(v.findall("OUTCOME")) for v in root.iter("VARIABLE")}
    result = {}
    for definition in root.iter("DEFINITION"):
        child = definition.findtext("FOR").strip()
        shape = [counts[given.text.strip()] for given in definition.findall("GIVEN")] + [counts[child]]
        words = "".join(definition.find("TABLE").itertext()).split()
        table = np.array([float(word) for word in words]).reshape(shape)
        result[child] = table / table.sum(axis=-1, keepdims=True)
    return result


@pytest.mark.parametrize(
    ("count", "seed"), [(1500, 1500), *(pytest.param(50_000, 50_000 + k, marks=pytest.mark.slow) for k in range(3))]
)
def test_damaged_xml(count, seed, tell):
    rng = random.Random(seed)
    accepted = 0
    for number in range(count):
        data = XML if number == 0 else damage(XML, rng, XML_POOL)
        try:
            network = parse_xmlbif(data, "f.xml")
        except FormatError as error:
            network, message = None, str(error)
        except Exception as error:
            raise AssertionError(f"{data!r}") from error
        if network is None:
            assert number
            assert re.match(r"f\.xml:\d+: [^\n]+$", message), message
            continue
        accepted += 1
        expected = tree_tables(data)
        assert list(network.variable_names) == sorted(expected, key=network.variable_names.index)
        for name, table in zip(network.variable_names, network.tables, strict=True):
            np.testing.assert_allclose(table, expected[name], rtol=1e-14)
    assert 0.02 * count < accepted < 0.5 * count, accepted
    if count > 10_000:
        tell("damaged files", f"XMLBIF, seed {seed}: a network or an error", f"{count} of {count}")
