"""Networks in XMLBIF."""

from __future__ import annotations

import gzip

import pytest
from test_bif import ROWS, net

from fastmix.errors import FormatError
from fastmix.io import read_network
from fastmix.io.bif import parse_bif
from fastmix.io.xmlbif import is_xmlbif, parse_xmlbif

XML = """<?xml version="1.0"?>
<!DOCTYPE BIF [
<!ELEMENT BIF ( NETWORK )*>
<!ATTLIST BIF VERSION CDATA #REQUIRED>
<!ELEMENT VARIABLE ( NAME, ( OUTCOME | PROPERTY )* ) >
<!ATTLIST VARIABLE TYPE (nature|decision|utility) "nature">
]>
<BIF VERSION="0.3">
<NETWORK><NAME>n</NAME><PROPERTY>software x</PROPERTY>
<VARIABLE TYPE="nature"><NAME>a</NAME><OUTCOME>s</OUTCOME><OUTCOME>t</OUTCOME></VARIABLE>
<VARIABLE><NAME> b </NAME><PROPERTY>position = (1, 2)</PROPERTY>
<OUTCOME>x</OUTCOME><OUTCOME>y</OUTCOME><OUTCOME>z</OUTCOME></VARIABLE>
<DEFINITION><FOR>b</FOR><GIVEN>a</GIVEN>
<TABLE> 0.1 0.2 0.7 <!-- of
s -->
0.3 0.3 0.4 </TABLE></DEFINITION>
<DEFINITION><FOR>a</FOR><TABLE>0.4 0.6</TABLE></DEFINITION>
</NETWORK>
</BIF>
"""


class TestXml:
    def test_a_network(self, tmp_path):
        network = parse_xmlbif(XML)
        expected = parse_bif(net(ROWS))
        assert network == expected
        (tmp_path / "a.xml.gz").write_bytes(gzip.compress(XML.encode()))
        assert read_network(tmp_path / "a.xml.gz") == expected

    def test_the_order_of_a_table_with_two_parents(self):
        more = "<VARIABLE><NAME>c</NAME><OUTCOME>p</OUTCOME><OUTCOME>q</OUTCOME></VARIABLE><DEFINITION><FOR>c</FOR>"
        more += (
            "<GIVEN>b</GIVEN><GIVEN>a</GIVEN><TABLE>.1 .9 .2 .8 .3 .7 .4 .6 .5 .5 1 0</TABLE></DEFINITION></NETWORK>"
        )
        network = parse_xmlbif(XML.replace("</NETWORK>", more))
        assert network.parents[2] == (1, 0)
        assert network.tables[2][..., 0].tolist() == [[0.1, 0.2], [0.3, 0.4], [0.5, 1.0]]

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
    def test_encodings(self, encoding):
        declared = encoding.removesuffix("-sig")
        text = XML.replace('"1.0"', f'"1.0" encoding="{declared}"').replace("<OUTCOME>s<", "<OUTCOME>é &amp; &#34;ü<")
        assert parse_xmlbif(text.encode(encoding)).state_names[0] == ('é & "ü', "t")
        assert parse_xmlbif(text).state_names[0] == ('é & "ü', "t")

    def test_sniffing(self):
        assert is_xmlbif(XML.encode())
        assert not is_xmlbif(b"<html>")
        assert not is_xmlbif(net(ROWS).encode())

    @pytest.mark.parametrize(
        ("old", "new", "line", "message"),
        [
            ("<!ELEMENT BIF", '<!ENTITY x "boo">\n<!ELEMENT BIF', 3, "entities are not allowed, got 'x'"),
            (
                "<!ELEMENT BIF",
                '<!ENTITY x SYSTEM "/etc/passwd">\n<!ELEMENT BIF',
                3,
                "entities are not allowed, got 'x'",
            ),
            ("<!ELEMENT BIF", '<!ENTITY % x SYSTEM "/etc/passwd"> %x;\n<!ELEMENT BIF', 3, "entities are not allowed"),
            ("<NAME>n<", "<NAME>&x;<", 9, "undefined entity"),
            ("<NAME>a</NAME>", "<NAME>a</NAME><NAME>m</NAME>", 10, "expected one NAME element in VARIABLE, got 2"),
            ('TYPE="nature"', 'TYPE="decision"', 10, "expected a variable of TYPE 'nature', got 'decision'"),
            ("<NAME>a</NAME>", "", 10, "expected one NAME element in VARIABLE, got 0"),
            ("<NAME>a</NAME>", "<NAME> </NAME>", 10, "expected a name, got ''"),
            ("<OUTCOME>t<", "<OUTCOME>s<", 10, "must all be different, got 's' again"),
            ("<OUTCOME>t<", "<OUTCOME>t<b/><", 10, "expected text, got element 'b'"),
            ("<GIVEN>a</GIVEN>", "<GIVEN>c</GIVEN>", 13, "expected the name of a declared variable, got 'c'"),
            (
                "<GIVEN>a</GIVEN>",
                "<VALUE>a</VALUE>",
                13,
                "expected FOR or GIVEN or TABLE or PROPERTY, got element 'VALUE'",
            ),
            ("<FOR>b</FOR>", "", 13, "expected one FOR element in DEFINITION, got 0"),
            ("<FOR>a</FOR>", "<FOR>b</FOR>", 17, "each variable must have one table, got a second for 'b'"),
            ("<DEFINITION><FOR>a</FOR><TABLE>0.4 0.6</TABLE></DEFINITION>", "", 10, "got none for 'a'"),
            (
                "<FOR>a</FOR><TABLE>0.4 0.6",
                "<FOR>a</FOR><GIVEN>b</GIVEN><TABLE>1 0 1 0 1 0",
                17,
                "cycle, got 'a -> b -> a'",
            ),
            ("0.3 0.3 0.4", "0.3 0.3", 14, "expected 6 = 2 x 3 probabilities of 'b', got 5"),
            ("0.3 0.3 0.4", "0.3 x 0.4", 16, "a probability of 'b' must be a finite number of at least 0, got 'x'"),
            ("0.3 0.3 0.4", "0.3 -0.3 0.4", 16, "at least 0, got '-0.3'"),
            ("0.3 0.3 0.4", "0.3 0.3 0.3", 16, "of 'b' for (t) must sum to 1 within 1e-4, got 0.9"),
            ("<NAME>n</NAME>", "<NAME>n</NAME><NAME>m</NAME>", 9, "expected one NAME element in NETWORK, got 2"),
            ("<DEFINITION>", "text<DEFINITION>", 13, "expected an element, got 'text'"),
            ("<OUTCOME>t</OUTCOME>", "<OUTCOME>t</OUTCOME>u", 10, "expected an element, got 'u'"),
            ('<VARIABLE TYPE="nature">', '<VARIABLE> TYPE="nature">', 10, "expected an element, got 'TYPE="),
            ("</NETWORK>", "", 19, "expected XML, got mismatched tag"),
            ("</NETWORK>", "</NETWORK><NETWORK/>", 18, "expected one NETWORK element in BIF, got 2"),
        ],
    )
    def test_refused_with_its_place(self, old, new, line, message):
        assert old in XML
        with pytest.raises(FormatError) as caught:
            parse_xmlbif(XML.replace(old, new, 1), "f.xml")
        assert str(caught.value).startswith(f"f.xml:{line}: ")
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "empty"),
            ("<BIF/>", "NETWORK .*BIF, got 0"),
            ("<html/>", "BIF, .*'html'"),
            ('<?xml version="1.0" encoding="martian"?><BIF/>', "known encoding"),
            ('<?xml version="1.0" encoding="shift_jis"?><BIF/>', "known encoding"),
            ("<BIF>" * 10**5, "XML, got .*no element"),
            ("\0", "expected XML"),
        ],
    )
    def test_other_files(self, text, message):
        with pytest.raises(FormatError, match=rf"^f\.xml:1: .*{message}"):
            parse_xmlbif(text.encode(), "f.xml")

    def test_nothing_outside_is_opened(self, tmp_path, monkeypatch):
        outside = tmp_path / "outside.dtd"
        outside.write_text('<!ENTITY x "0.4">')
        text = XML.replace("<!DOCTYPE BIF [", f'<!DOCTYPE BIF SYSTEM "{outside}" [')
        assert parse_xmlbif(text) == parse_xmlbif(XML)
        with pytest.raises(FormatError, match=r"entities .*'x'$"):
            parse_xmlbif(text.replace("0.4 0.6", "&x; 0.6"))
