"""Runs `tailrace report` on results and records made here and looks at the page: what is drawn, from which numbers,
that nothing is loaded from elsewhere.   report_test.py TAILRACE MAKE_ENVIRONMENT [unittest options]

The interpreter is TAILRACE_PYTHON, or that of the environment that MAKE_ENVIRONMENT (scripts/python_env) prints. Where
neither can be had, the test is skipped with exit status 77.
"""

import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "report"))
import data
import shapes

TAILRACE, MAKE_ENVIRONMENT = sys.argv[1:3]
MIB = 2**20


def settings(**changed):
    whole = {
        "writers": 1,
        "files": 1,
        "placement": "append",
        "buffer_bytes": 4 * MIB,
        "buffers": 8,
        "block_bytes": 0,
        "io_engine": "posix",
        "queue_depth": 32,
        "direct_io": "auto",
        "followers": 1,
        "processes": 8,
        "process_bytes": MIB,
        "imbalance_percent": 20,
        "seed": 1,
        "local": True,
        "durable": True,
    }
    return {**whole, **changed}


def run_of(case, mib_per_second, repetition=0):
    return {
        "case": case,
        "repetition": repetition,
        "bytes_per_second": 2 * mib_per_second * MIB,
        "received_bytes_per_second": mib_per_second * MIB,
    }


def bench(cases, runs, **place):
    machine = {
        "host": "h<ost>",
        "kernel": "k",
        "processor": "p",
        "processors": 2,
        "memory_bytes": 2**34,
        "directory": "/d",
        "file_system": "ext4",
        "local_directory": "/l",
        "local_file_system": "tmpfs",
        "tailrace": "0.1.0",
        "threads": "OpenMP",
        "began_unix_ms": 1_700_000_000_000,
        **place,
    }
    return {"tailrace_bench": 1, "complete": True, "machine": machine, "repetitions": 2, "cases": cases, "runs": runs}


def leader(node, received, local, move):
    thread = {
        "local_bytes": local,
        "received_bytes": received,
        "local_chunks": 1,
        "received_chunks": 1,
        "read_seconds": 0.1,
        "local_write_seconds": move / 4,
        "received_write_seconds": move / 4,
        "idle_seconds": move / 4,
    }
    return {
        "node": node,
        "group": node,
        "role": "leader",
        "seconds": move + 1,
        "plan_seconds": 0.1,
        "prepare_seconds": 0.1,
        "move_seconds": move,
        "commit_seconds": 0.2,
        "local_bytes": local,
        "received_bytes": received,
        "received_chunks": 1,
        "chunk_wait_seconds": 0,
        "longest_chunk_wait_seconds": 0,
        "write_seconds": move,
        "sync_seconds": 0.1,
        "threads": [thread, thread],
    }


def follower(node, sent):
    return {
        "node": node,
        "group": 0,
        "role": "follower",
        "seconds": 2,
        "sent_bytes": sent,
        "sent_chunks": 1,
        "credit_wait_seconds": 0.5,
    }


def record(uid, files, shared_dir="/s", epochs=3, job="job", ranks=4, capture=(0.25, 0.25, 0.25), **others):
    lines = [
        {
            "record": "session",
            "run_uid": uid,
            "job": job,
            "run": 1,
            "began_unix_ms": 1_700_000_000_000,
            "tailrace": "0.1.0",
            "host": "h",
            "shared_dir": shared_dir,
            "file_system": "ext4",
            "io_engine": "posix",
            "ranks": ranks,
            "nodes": 4,
            "settings": {"files": str(files), "name": job, "record_dir": f"/of {uid}", **others},
        }
    ]
    for epoch in range(1, epochs + 1):
        nodes = [
            leader(0, 3 * MIB, 5 * MIB, 2.0),
            follower(1, 3 * MIB),
            leader(2, 4 * MIB, 4 * MIB, 3.0),
            follower(3, 4 * MIB),
        ]
        lines.append(
            {
                "record": "epoch",
                "run_uid": uid,
                "epoch": epoch,
                "run": 1,
                "state": "committed",
                "ended_unix_ms": 1,
                "flush_seconds": 3.5,
                "capture": {
                    "ranks": 4,
                    "bytes": 16 * MIB,
                    "least_seconds": 0.1,
                    "mean_seconds": 0.2,
                    "most_seconds": capture[epoch - 1],
                    "most_wait_seconds": 0,
                },
                "nodes": nodes,
            }
        )
    lines.append(
        {
            "record": "epoch",
            "run_uid": uid,
            "epoch": 99,
            "run": 1,
            "state": "failed",
            "why": "no",
            "ended_unix_ms": 1,
            "flush_seconds": 0,
            "nodes": [],
        }
    )
    lines.append(
        {"record": "end", "run_uid": uid, "ended_unix_ms": 1, "seconds": 20, "epochs": epochs, "blocked_seconds": 0.75}
    )
    return "".join(json.dumps(line) + "\n" for line in lines)


class Page(html.parser.HTMLParser):
    """Sections by name: their text, tables as rows of cells; and everything that would be loaded."""

    def __init__(self, text):
        super().__init__()
        self.sections, self.loads, self.identifiers = {}, [], []
        self.section, self.cell = None, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        names = dict(attributes)
        if tag in ("script", "link", "img", "iframe"):
            self.loads.append(tag)
        for key in ("src", "href", "xlink:href"):
            if names.get(key) and not names[key].startswith("#"):
                self.loads.append(names[key])
        if "id" in names:
            self.identifiers.append(names["id"])
        if tag == "section":
            self.section = self.sections.setdefault(names["id"], {"text": "", "rows": []})
        if tag == "tr" and self.section is not None:
            self.section["rows"].append([])
        if tag in ("td", "th") and self.section is not None:
            self.section["rows"][-1].append("")
            self.cell = self.section["rows"][-1]

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.cell = None
        if tag == "section":
            self.section = None

    def handle_data(self, data):
        if self.section is not None:
            self.section["text"] += data
        if self.cell is not None:
            self.cell[-1] += data


class ReportTest(unittest.TestCase):
    python = None

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="tailrace report Größe "))
        self.addCleanup(shutil.rmtree, self.root)
        self.page = self.root / "page.html"

    def put(self, name, content):
        path = self.root / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def report(self, *arguments, code=0, python=None, **environment):
        done = subprocess.run(
            [TAILRACE, "report", *map(str, arguments), "-o", self.page],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env={**os.environ, "TAILRACE_PYTHON": python or self.python, **environment},
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def read_page(self):
        text = self.page.read_text(encoding="utf-8")
        page = Page(text)
        self.assertEqual(page.loads, [], "the page is self-contained")
        self.assertEqual(len(page.identifiers), len(set(page.identifiers)), "identifiers are unique")
        self.assertIn("prefers-color-scheme: dark", text)
        self.assertNotRegex(text, r"#0102[0-9a-f]{2}", "every colour follows the theme")
        for svg in re.findall(r"<svg.*?</svg>", text, re.S):
            xml.etree.ElementTree.fromstring(svg)
        self.identifiers = page.identifiers
        return page.sections

    def drawn(self, kind):
        """How often matplotlib drew one: error bars are a LineCollection each, ticks an xtick each."""
        return sum(1 for name in self.identifiers if name.startswith(kind))

    def column(self, section, *names):
        """The cells below the headings with these places or names."""
        head, *rows = section["rows"]
        return [tuple(row[head.index(name) if isinstance(name, str) else name] for name in names) for row in rows]

    def test_bench_results_become_the_papers_figures(self):
        cases = [
            settings(followers=f, writers=w, files=k, placement=p)
            for f in (1, 4)
            for w in (1, 8)
            for k in (1, 4)
            for p in ("contiguous", "interleaved")
        ]
        runs = [run_of(i, 100 + i + 10 * repetition, repetition) for repetition in range(3) for i in range(len(cases))]
        self.report(self.put("bench.json", bench(cases, runs)))
        sections = self.read_page()
        self.assertEqual(list(sections), ["throughput", "contiguous-interleaved", "configurations"])
        rows = sections["throughput"]["rows"]
        self.assertEqual(len(rows), 1 + 16)
        first = dict(zip(rows[0], rows[1], strict=True))
        self.assertEqual(
            (first["median MiB/s"], first["least"], first["most"], first["runs"]), ("110", "100", "120", "3")
        )
        self.assertIn("1 file", sections["throughput"]["text"])
        self.assertIn("4 files", sections["throughput"]["text"])
        ratio = dict(zip(*sections["contiguous-interleaved"]["rows"][:2], strict=True))
        self.assertEqual(
            (ratio["ratio"], ratio["least"], ratio["most"], ratio["turns"]),
            (str(round(110 / 111, 3)), str(round(100 / 101, 3)), str(round(120 / 121, 3)), "3"),
        )
        self.assertEqual(self.drawn("contiguous-interleaved-LineCollection"), 2, "error bars for each number of files")
        fastest = sections["configurations"]["rows"][1]
        self.assertEqual(fastest[1], str(2 * (100 + len(cases) - 1 + 10)))
        self.assertIn("h<ost>", self.page.read_text(encoding="utf-8").replace("&lt;", "<").replace("&gt;", ">"))

    def test_runs_with_other_settings_are_not_mixed_into_a_line(self):
        cases = [settings(writers=1), settings(writers=2), settings(writers=2, direct_io="off")]
        self.report(self.put("bench.json", bench(cases, [run_of(0, 100), run_of(1, 200), run_of(2, 10)])))
        sections = self.read_page()
        self.assertEqual([row[4] for row in sections["throughput"]["rows"][1:]], ["100", "200"])
        self.assertIn("left out because they differ (direct io): 1.", sections["throughput"]["text"])

    def test_runs_of_other_places_are_not_mixed(self):
        cases, runs = [settings(writers=1), settings(writers=2)], [run_of(0, 100), run_of(1, 200)]
        here = self.put("here.json", bench(cases, runs))
        for name, place in {"host": {"host": "other"}, "directory": {"directory": "/x"}, "nfs": {"file_system": "nfs"},
                            "version": {"tailrace": "0.2.0"}}.items():  # fmt: skip
            there = self.put("there.json", bench(cases, [run_of(0, 10), run_of(1, 20)], **place))
            self.report(here, there, "--force")
            sections = self.read_page()
            self.assertEqual([row[4] for row in sections["throughput"]["rows"][1:]], ["100", "200"], name)
            self.assertEqual([row[1] for row in sections["configurations"]["rows"][1:]], ["400", "200", "40", "20"])
            self.assertEqual(len({row[0] for row in sections["configurations"]["rows"]}), 5, "labels tell them apart")

    def test_every_setting_keeps_runs_apart(self):
        for changed in ({"buffers": 64}, {"imbalance_percent": 0}, {"seed": 2}, {"local": False}, {"durable": False}):
            cases = [settings(writers=1), settings(writers=2), settings(writers=2, **changed)]
            self.report(
                self.put("bench.json", bench(cases, [run_of(0, 100), run_of(1, 200), run_of(2, 10)])), "--force"
            )
            sections = self.read_page()
            self.assertEqual([row[4] for row in sections["throughput"]["rows"][1:]], ["100", "200"], changed)
            self.assertEqual([row[1] for row in sections["configurations"]["rows"][1:]], ["400", "200", "20"], changed)

    def test_what_was_not_synced_is_not_called_durable(self):
        for durable, unit in ((True, "MiB/s until durable"), (False, "MiB/s, not synced")):
            self.report(self.put("bench.json", bench([settings(durable=durable)], [run_of(0, 100)])), "--force")
            text = self.read_page()["configurations"]["text"]
            self.assertIn(unit, text)
            self.assertEqual("durable" in text, durable)

    def test_the_legend_has_the_lines_of_all_panels_and_the_axis_shows_none(self):
        cases = [settings(files=1, followers=f) for f in (0, 1, 4)]
        cases += [settings(files=4, followers=f, placement="interleaved") for f in (1, 4)]
        self.report(self.put("bench.json", bench(cases, [run_of(i, 100 + i) for i in range(len(cases))])))
        text = self.read_page()["throughput"]["text"]
        self.assertIn("1 writer, append", text)
        self.assertIn("1 writer, interleaved", text)
        self.assertEqual(self.drawn("throughput-xtick"), 2 * 3, "0, 1 and 4 followers in both panels")

    def test_the_axis_that_panels_share_reaches_to_the_top_of_all(self):
        cases = [settings(files=k, followers=f) for k in (1, 4) for f in (1, 4)]
        runs = [run_of(i, 90 if case["files"] == 1 else 970) for i, case in enumerate(cases)]
        self.report(self.put("bench.json", bench(cases, runs)))
        self.assertIn("800", self.read_page()["throughput"]["text"], "a tick of the second panel's range")

    def test_records_become_the_papers_figures(self):
        self.report(self.put("a.jsonl", record("aa", 1)), self.put("b.jsonl", record("bb", 2)))
        sections = self.read_page()
        self.assertEqual(list(sections), ["over-files", "over-imbalance", "per-leader", "per-thread", "application"])
        self.assertEqual(
            self.column(sections["over-files"], "nodes", "K", "apart by", "epochs", "local s", "flush s"),
            [("4", "1", "", "3", "0.25", "3.5"), ("4", "2", "", "3", "0.25", "3.5")],
        )
        self.assertEqual(
            self.column(sections["over-imbalance"], "imbalance %", "epochs", "local s per GiB", "flush s per GiB"),
            [("25", "3", "16.0", "224.0")] * 2,
        )
        self.assertIn("local phase, s per GiB", sections["over-imbalance"]["text"])
        leaders = sections["per-leader"]["rows"]
        self.assertEqual([row[0] for row in leaders[1:]], ["2", "0"], "slowest first")
        self.assertEqual(leaders[1][2:5], [str(4 * MIB), str(4 * MIB), "3.3"])
        self.assertEqual(len(sections["per-thread"]["rows"]), 1 + 4)
        self.assertEqual(sections["application"]["rows"][1][2:], ["1", "20", "20", "20", "0.75"])

    def test_both_phases_have_error_bars(self):
        self.report(self.put("a.jsonl", record("aa", 1, capture=(0.5, 0.25, 1))))
        sections = self.read_page()
        self.assertEqual(sections["over-files"]["rows"][1][6:12], ["0.5", "0.25", "1.0", "3.5", "3.5", "3.5"])
        self.assertEqual(sections["over-imbalance"]["rows"][1][5:8], ["32.0", "16.0", "64.0"])
        self.assertEqual(self.drawn("over-files-LineCollection"), 2)
        self.assertEqual(self.drawn("over-imbalance-LineCollection"), 2 + 1, "and one in the legend")

    def test_sessions_that_differ_are_not_pooled(self):
        one = self.put("a.jsonl", record("aa", 1))
        for changed, label in (({"job": "other"}, "job other"), ({"shared_dir": "/x/s"}, "in /x/s"),
                               ({"ranks": 16}, "16 ranks"), ({"writers": "9"}, "")):  # fmt: skip
            two = self.put("b.jsonl", record("bb", 1, capture=(9, 9, 9), **changed))
            self.report(one, two, "--force")
            sections = self.read_page()
            self.assertEqual(sorted(self.column(sections["over-files"], "epochs", "local s")),
                             [("3", "0.25"), ("3", "9.0")], changed)  # fmt: skip
            self.assertEqual(len(sections["over-imbalance"]["rows"]), 3, changed)
            self.assertEqual(len(sections["application"]["rows"]), 3, changed)
            for name in ("over-files", "over-imbalance", "application"):
                self.assertIn(label, sections[name]["text"])
        self.report(one, self.put("b.jsonl", record("bb", 2, record_bytes="1MiB")), "--force")
        self.assertEqual(self.column(self.read_page()["over-files"], "K"), [("1",), ("2",)])

    def test_long_differences_have_a_letter_that_the_text_explains(self):
        files = [
            self.put(f"{uid}.jsonl", record(uid, files, f"/scratch/{name}/of/a/run", writers=writers))
            for uid, files, name, writers in (
                ("aa", 1, "the-first-one", "4"), ("bb", 2, "the-first-one", "4"),
                ("cc", 1, "the-second-one", "8"), ("dd", 2, "the-second-one", "8"))
        ]  # fmt: skip
        self.report(*files)
        sections = self.read_page()
        apart = ["A: in the-first-one, 4 writers", "B: in the-second-one, 8 writers"]
        for name in ("over-files", "over-imbalance", "application"):
            self.assertEqual(sorted({cell for (cell,) in self.column(sections[name], "apart by")}), apart)
            for line in apart:
                self.assertIn(line + ".", sections[name]["text"])

    def test_settings_do_not_keep_sessions_apart_that_saved_nothing(self):
        silent = [
            "".join(
                line + "\n" for line in record(uid, files, epochs=0).splitlines() if '"record": "epoch"' not in line
            )
            for uid, files in (("bb", 1), ("cc", 2))
        ]
        self.report(self.put("a.jsonl", "".join([record("aa", 1), *silent])))
        rows = self.column(self.read_page()["application"], "session", "runs")
        self.assertEqual(rows, [("no checkpoints, 4 nodes", "2"), ("K = 1, 4 nodes", "1")])

    def test_a_record_that_was_cut_short_is_drawn_and_the_rest_is_named(self):
        text = record("aa", 1)
        self.report(self.put("cut.jsonl", text[:-400]))
        self.assertIn("over-files", self.read_page())
        self.assertIn("1 lines were passed over", self.page.read_text(encoding="utf-8"))
        self.report(self.put("cut.jsonl", text[:-400] + "\n" + record("bb", 2)), "--force")
        self.assertEqual(self.column(self.read_page()["over-files"], "K", "epochs"), [("1", "2"), ("2", "3")])

    def test_a_shared_directory_stands_for_its_records(self):
        shared = self.root / "shared dir"
        shared.mkdir()
        state = self.root / "state" / "tailrace"
        state.mkdir(parents=True)
        (state / "job-1.jsonl").write_text(record("aa", 1, str(shared)))
        (state / "job-2.jsonl").write_text(record("bb", 2, "/elsewhere"))
        (state / "job-3.jsonl").write_text("[" * 200000)
        link = self.root / "link"
        link.symlink_to(shared)
        self.report(link, XDG_STATE_HOME=str(self.root / "state"))
        self.assertEqual([row[1] for row in self.read_page()["over-files"]["rows"][1:]], ["1"])
        self.page.unlink()
        done = self.report(self.root, code=3, XDG_STATE_HOME=str(self.root / "state"))
        self.assertIn("no record of a session", done.stderr)
        (state / "job-0.jsonl").mkdir()
        self.report(link, XDG_STATE_HOME=str(self.root / "state"))
        self.read_page()
        self.assertIn("job-0.jsonl: Is a directory", self.page.read_text(encoding="utf-8"))
        self.page.unlink()
        done = self.report(self.root, code=3, XDG_STATE_HOME=str(self.root / "state"))
        self.assertIn("job-0.jsonl: Is a directory", done.stderr)

    def test_profiles_become_the_posters_figures(self):
        def tally(**given):
            names = ("opens", "reads", "read_bytes", "writes", "written_bytes", "seeks", "backward_seeks")
            names += ("backward_offsets", "syncs", "maps")
            return {**dict.fromkeys(names, 0), "read_sizes": {}, "write_sizes": {}, **given}

        save = tally(opens=1, writes=7, written_bytes=9000, syncs=1, write_sizes={"512": 4, "4096": 3})
        restore = tally(opens=2, reads=9, seeks=5, backward_seeks=4, read_sizes={"0": 1, "65536": 8})
        profile = {
            "tailrace_profile": 1,
            "command": ["train", "<me>"],
            "host": "h",
            "processes": 2,
            "seconds": 1,
            "strace": "6",
            "began_unix_ms": 1,
            "phases": {"save": {"files": 1, **save}, "restore": {"files": 1, **restore}},
            "size_bins": [[4096, "small"], [65536, "middle"], [1 << 62, "large"]],
            "unseen": {"io_urings": 1, "mapped_files": []},
            "files": [{"path": "/c/a", "save": save}, {"path": "/c/b", "restore": restore}],
        }
        self.report(self.put("one.json", profile))
        figures = self.read_page()
        self.assertEqual(list(figures), ["io-calls", "io-writes", "io-reads"])
        self.assertEqual(figures["io-writes"]["rows"][1:], [["a", "4", "3", "0", "0"]])
        self.assertEqual(figures["io-reads"]["rows"][1:], [["b", "1", "0", "8", "4"]])
        self.assertEqual(figures["io-calls"]["rows"][1][:8], ["one", "save", "1", "1", "7", "0", "0", "1"])
        self.assertIn("one used io_uring", self.page.read_text())
        del profile["files"]
        self.assertIn("damaged", self.report(self.put("y.json", profile), "--force", code=3).stderr)

    def test_png_writes_every_figure_light_and_dark(self):
        self.report(self.put("a.jsonl", record("aa", 1)), "--png", self.root / "pictures")
        names = sorted(path.name for path in (self.root / "pictures").iterdir())
        self.assertEqual(len(names), 2 * len(self.read_page()))
        self.assertIn("per-leader-dark.png", names)
        for name in names:
            self.assertTrue((self.root / "pictures" / name).read_bytes().startswith(b"\x89PNG"), name)

    def test_what_is_damaged_is_named_with_the_place(self):
        def changed(document, change):
            document = json.loads(json.dumps(document))
            change(document)
            return document

        def refusal(path):
            with self.assertRaises(data.NotReadable) as caught:
                data.read([str(path)], str(self.root))
            return str(caught.exception)

        results = bench([settings()], [run_of(0, 100)])
        lines = [json.loads(line) for line in record("aa", 1).splitlines()]
        for change, said in (
            (lambda d: d["runs"][0].update(bytes_per_second="fast"), "runs[0].bytes_per_second: a number"),
            (lambda d: d["runs"][0].update(bytes_per_second=float("nan")), "runs[0].bytes_per_second: a number"),
            (
                lambda d: d["runs"][0].update(received_bytes_per_second=1e300),
                "runs[0].received_bytes_per_second: a number",
            ),
            (lambda d: d["runs"][0].update(case=-1), "runs[0].case: a whole number"),
            (lambda d: d["runs"][0].update(case=1), "runs[0].case: the number of a case"),
            (lambda d: d["cases"][0].pop("writers"), 'cases[0]: "writers"'),
            (lambda d: d["cases"][0].update(seed=[1]), "cases[0].seed: text or a number"),
            (lambda d: d["cases"][0].update(seed=10**400), "cases[0].seed: text or a number"),
            (lambda d: d["cases"][0].update(seed=float("nan")), "cases[0].seed: text or a number"),
            (lambda d: d["machine"].update(began_unix_ms=10**18), "machine.began_unix_ms: a time"),
            (lambda d: d.update(cases=7), "cases: a list"),
        ):
            self.assertIn(f"x.json is damaged: {said}", refusal(self.put("x.json", changed(results, change))))
        for number, change, said in (
            (0, lambda d: d.update(nodes="4"), "line 1: nodes: a whole number"),
            (0, lambda d: d["settings"].update(files="many"), "line 1: settings.files: a number in quotes"),
            (0, lambda d: d["settings"].update(writers=10**400), "line 1: settings.writers: text or a number"),
            (0, lambda d: d.update(run_uid=[]), "line 1: run_uid: text"),
            (
                1,
                lambda d: d["nodes"][0]["threads"][0].pop("idle_seconds"),
                'line 2: nodes[0].threads[0]: "idle_seconds"',
            ),
            (1, lambda d: d["capture"].update(bytes=None), "line 2: capture.bytes: a whole number"),
            (5, lambda d: d.update(seconds=True), "line 6: seconds: a number"),
        ):
            text = "\n".join(json.dumps(changed(line, change) if i == number else line) for i, line in enumerate(lines))
            self.assertIn(f"x.jsonl is damaged: {said}", refusal(self.put("x.jsonl", text)))
        for text in ("[" * 200000, '{"tailrace_bench":' + "[" * 3000 + "]" * 3000 + "}", '{"record":' * 50000):
            self.assertIn("x.json holds neither", refusal(self.put("x.json", text)))
        results["machine"] = None
        self.assertIn("x.json is damaged: machine", self.report(self.put("x.json", results), code=3).stderr)
        self.assertFalse(self.page.exists())

    def test_what_cannot_be_printed_is_escaped(self):
        self.assertEqual(shapes.clean_text("a\x1b\xa0\u3000\U000e0001b"), r"a\x1b\xa0\u{3000}\u{e0001}b")

    def test_any_text_can_be_drawn(self):
        texts = ("$a_{", "\ud800", "\x00\x1b", "</svg><script>")
        paths = [self.put(f"{number}.json", bench([settings()], [run_of(0, 100)], host=text, directory=f"/{text}"))
                 for number, text in enumerate(texts)]  # fmt: skip
        self.report(*paths)
        self.assertEqual(len(self.read_page()["configurations"]["rows"]), 1 + len(texts))

    def test_what_cannot_be_read_is_named(self):
        self.page = ""
        named = '--output "" is not the name of a file'
        self.assertIn(named, self.report(self.put("a.jsonl", record("aa", 1)), code=2).stderr)
        self.page = self.root / "page.html"
        self.assertIn("No such file", self.report(self.root / "none.json", code=3).stderr)
        self.assertIn("neither results", self.report(self.put("x.json", "[]"), code=3).stderr)
        self.assertIn("damaged", self.report(self.put("y.json", {"tailrace_bench": 1}), code=3).stderr)
        self.assertIn(
            "nothing to draw",
            self.report(self.put("z.jsonl", record("aa", 1, epochs=0).splitlines()[0]), code=3).stderr,
        )
        self.assertFalse(self.page.exists())
        self.page.write_text("mine")
        self.assertIn("--force", self.report(self.put("a.jsonl", record("aa", 1)), code=2).stderr)
        self.assertEqual(self.page.read_text(), "mine")
        self.assertIn("RESULTS", self.report(code=2).stderr)

    def test_without_the_library_or_python_it_says_what_to_install(self):
        bare = self.root / "bare"
        bare.mkdir()
        (bare / "matplotlib.py").write_text("raise ImportError('not here')\n")
        done = self.report(self.put("a.jsonl", record("aa", 1)), code=4, PYTHONPATH=str(bare))
        self.assertIn("pip install matplotlib", done.stderr)
        self.assertIn("TAILRACE_PYTHON", done.stderr)
        done = self.report("x", code=3, python="/nonexistent/python")
        self.assertIn("install Python", done.stderr)
        help_text = subprocess.run(
            [TAILRACE, "report", "--help"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "TAILRACE_PYTHON": self.python},
        ).stdout
        self.assertIn("--png", help_text)


if __name__ == "__main__":
    ReportTest.python = os.environ.get("TAILRACE_PYTHON")
    if not ReportTest.python:
        made = subprocess.run([MAKE_ENVIRONMENT, "report"], stdout=subprocess.PIPE, text=True, check=False)
        if made.returncode != 0:
            print("skipped: no interpreter with matplotlib, and scripts/python_env could not make one")
            sys.exit(77)
        ReportTest.python = os.path.join(made.stdout.strip(), "bin", "python")
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
