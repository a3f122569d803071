#!/usr/bin/env python3
"""The site that `make docs` builds can be read from the disk: site_test.py [SITE]

Every link leads to a page that is there, and to a place in it; nothing on a page is loaded from elsewhere; the search
has its index, with every page in it. `make docs` runs this with the site that it has built. Without a site only the
checks themselves are tested, on planted ones: what each must notice is planted there.
"""

from __future__ import annotations

import html.parser
import json
import pathlib
import re
import sys
import tempfile
import unittest
import urllib.parse

SITE = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else None
ELSEWHERE = re.compile(r"(?:https?:)?//")
STYLE_LOADS = re.compile(r"@import\s+(?:url\()?['\"]?([^'\");]+)|url\(\s*['\"]?([^'\")]+)")
# The front page, a page of docs/, and one of each kind that is made from something else.
MUST_BE_THERE = (
    "index.html",
    "search.html",
    "docs/settings.html",
    "manual/tailrace.1.html",
    "manual/tailrace_saving.3.html",
    "reference/c/tailrace_saving.html",
    "reference/cpp/tailrace.hpp.html",
    "reference/python/tailrace.html",
    "files/examples/heat.c.html",
)
# Where the index leads for a function of C, of C++ and of Python.
MUST_BE_FOUND = (
    'reference/c/tailrace_saving.html#c.tailrace_save"',
    "reference/cpp/tailrace.hpp.html#_CPPv4N8tailrace7Session4saveE",
    'reference/python/tailrace.html#tailrace.Session.save"',
)


class Page(html.parser.HTMLParser):
    """What a page links to, what it loads, and the names of its places."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attributes}
        self.places |= {of[name] for name in ("id", "name") if of.get(name)}
        if tag == "a" and "href" in of:
            self.links.append(of["href"])
        elif tag == "link" and of.get("rel") in ("stylesheet", "icon", "preload", "shortcut icon"):
            self.loads.append(of["href"])
        elif tag in ("script", "img", "iframe", "source", "object") and (of.get("src") or of.get("data")):
            self.loads.append(of.get("src") or of["data"])
        self.loads += [one or two for one, two in STYLE_LOADS.findall(of.get("style", ""))]


def complaints(site: pathlib.Path) -> list[str]:
    """What is wrong with a site: "page: what"."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    bad: list[str] = []
    for path, page in pages.items():
        name = path.relative_to(site)
        for load in page.loads:
            if ELSEWHERE.match(load):
                bad.append(f"{name}: loads from elsewhere: {load}")
            elif not load.startswith("data:") and not leads_to(path, load).is_file():
                bad.append(f"{name}: loads what is not there: {load}")
        for link in dict.fromkeys(page.links):
            if ELSEWHERE.match(link) or link.startswith("mailto:"):
                continue
            target = leads_to(path, link) if not link.startswith("#") else path
            place = urllib.parse.unquote(link.partition("#")[2])
            if not target.is_file():
                bad.append(f"{name}: a link leads nowhere: {link}")
            elif place and target in pages and place not in pages[target].places:
                bad.append(f"{name}: a link leads to no place in its page: {link}")
    for style in sorted(site.rglob("*.css")):
        found = [one or two for one, two in STYLE_LOADS.findall(style.read_text(encoding="utf-8"))]
        bad += [f"{style.relative_to(site)}: loads from elsewhere: {u}" for u in found if ELSEWHERE.match(u)]
    return bad + complaints_of_search(site, [str(p.relative_to(site).with_suffix("")) for p in pages])


def leads_to(page: pathlib.Path, link: str) -> pathlib.Path:
    file = urllib.parse.unquote(re.split(r"[#?]", link)[0])
    target = (page.parent / file).resolve()
    return target / "index.html" if target.is_dir() else target


def complaints_of_search(site: pathlib.Path, pages: list[str]) -> list[str]:
    index = site / "searchindex.js"
    if not index.is_file():
        return ["searchindex.js: the search has no index"]
    match = re.fullmatch(r"Search\.setIndex\((.*)\)\s*", index.read_text(encoding="utf-8"), re.S)
    if match is None:
        return ["searchindex.js: is not understood"]
    found = set(json.loads(match[1])["docnames"])
    made = {"search", "genindex", "py-modindex"}  # lists that are no pages of their own
    return [f"{page}: the search does not know it" for page in pages if page not in found | made and page[0] != "_"]


INDEX = 'Search.setIndex({"docnames": ["index", "other"]})'
FRONT = '<a href="other.html#place">x</a><a href="https://example.org/">y</a><script src="a.js"></script>'


class PlantedTest(unittest.TestCase):
    """The checks on a site of two pages, with something planted."""

    def complaints_with(self, **changed: str) -> list[str]:
        files = {"index.html": FRONT, "other.html": '<p id="place">', "a.js": "", "a.css": "", "searchindex.js": INDEX}
        files |= {name.replace("_", "."): text for name, text in changed.items()}
        with tempfile.TemporaryDirectory() as directory:
            site = pathlib.Path(directory)
            for name, text in files.items():
                (site / name).write_text(text, encoding="utf-8")
            return complaints(site)

    def test_a_good_site_is_not_complained_about(self) -> None:
        self.assertEqual(self.complaints_with(), [])

    def test_a_link_to_no_page_is_noticed(self) -> None:
        other = '<p id="place"><a href="gone.html">'
        self.assertIn("leads nowhere: gone.html", self.complaints_with(other_html=other)[0])

    def test_a_link_to_no_place_is_noticed(self) -> None:
        self.assertIn("leads to no place in its page: other.html#place", self.complaints_with(other_html="<p>")[0])
        self.assertIn("no place in its page: #x", self.complaints_with(index_html='<a href="#x">')[0])

    def test_a_script_from_elsewhere_is_noticed(self) -> None:
        front = '<script src="https://example.org/a.js"></script>'
        self.assertIn("index.html: loads from elsewhere", self.complaints_with(index_html=front)[0])

    def test_a_font_from_elsewhere_is_noticed(self) -> None:
        for style in ('@import "https://example.org/a.css";', "p { src: url(//example.org/f) }"):
            self.assertIn("a.css: loads from elsewhere", self.complaints_with(a_css=style)[0])

    def test_a_picture_that_is_not_there_is_noticed(self) -> None:
        self.assertIn("loads what is not there: a.svg", self.complaints_with(index_html='<img src="a.svg">')[0])

    def test_a_page_that_the_search_does_not_know_is_noticed(self) -> None:
        index = 'Search.setIndex({"docnames": ["index"]})'
        self.assertEqual(self.complaints_with(searchindex_js=index), ["other: the search does not know it"])

    def test_a_search_without_an_index_is_noticed(self) -> None:
        self.assertEqual(self.complaints_with(searchindex_js=""), ["searchindex.js: is not understood"])


if SITE is not None:

    class SiteTest(unittest.TestCase):
        def test_site_has_no_complaints(self) -> None:
            bad = complaints(SITE)
            self.assertEqual(bad, [], "\n".join(bad))

        def test_site_has_every_kind_of_page(self) -> None:
            self.assertEqual([page for page in MUST_BE_THERE if not (SITE / page).is_file()], [])

        def test_every_page_of_the_project_is_there(self) -> None:
            project = pathlib.Path(__file__).resolve().parent.parent.parent
            names = [path.stem for path in (project / "docs").glob("*.md")]
            self.assertGreater(len(names), 20)
            self.assertEqual([n for n in names if not (SITE / "docs" / f"{n}.html").is_file()], [])

        def test_functions_of_each_language_are_in_the_index(self) -> None:
            text = (SITE / "genindex.html").read_text(encoding="utf-8")
            for place in MUST_BE_FOUND:
                self.assertIn(f'href="{place}', text)

        def test_options_stand_as_they_are_typed(self) -> None:
            text = (SITE / "manual" / "tailrace.1.html").read_text(encoding="utf-8")
            self.assertIn("--json", text)
            self.assertNotIn("\N{EN DASH}json", text)

        def test_site_has_a_light_and_a_dark_look(self) -> None:
            looks = "".join(p.read_text(encoding="utf-8") for p in SITE.rglob("furo.css"))
            self.assertTrue(re.search(r'data-theme="?dark', looks), "the theme has no style for the dark look")


if __name__ == "__main__":
    unittest.main()
