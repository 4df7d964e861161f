"""Tests of the comparison's own logic on canned figures: no program of ours, no peer, no clock that counts."""
import os
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from . import cores, figures, machine, merge, prepare, processes, rows, tables

ROW = rows.Row("example", "an example", "samples/s", {"stock": 2.0, "limit": 0.5}, "products alone")


def samples(*values):
    return [{"value": value, "memory_mb": 100 + value} if value else {"error": "broke"} for value in values]


def result(row=ROW, others=0.0, **sides):
    return figures.result_of(row, sides, others, 0.5)


class Figures(unittest.TestCase):
    def test_median_of_even_and_odd_counts(self):
        self.assertEqual(figures.summary([3, 1, 2]), {"median": 2, "lowest": 1, "highest": 3, "rounds": 3})
        self.assertEqual(figures.summary([4, 1])["median"], 2.5)
        self.assertIsNone(figures.summary([]))

    def test_ratios_are_taken_within_rounds(self):
        # Medians of sides would say 20 / 10; each round says something else.
        self.assertEqual(figures.ratios(samples(10, 20, 40), samples(10, 5, 10)), [1, 4, 4])

    def test_seconds_are_better_when_lower(self):
        self.assertEqual(figures.ratios(samples(2), samples(6), lower_is_better=True), [3])

    def test_a_round_in_which_a_side_broke_does_not_count(self):
        found = result(ours=samples(4, 4, 4), stock=samples(2, None, 1))
        self.assertEqual(found["ratios"]["stock"]["rounds"], 2)
        self.assertEqual(found["errors"], ["stock: broke"])

    def test_a_side_that_never_ran_has_no_ratio_and_no_verdict(self):
        found = result(ours=samples(4), stock=samples(None))
        self.assertIsNone(found["ratios"]["stock"])
        self.assertEqual(found["met"], {})

    def test_aims_at_least_and_at_most(self):
        self.assertEqual(result(ours=samples(4), stock=samples(2), limit=samples(10))["met"], {"stock": True, "limit": False})
        slower = rows.Row("slower", aims={"limit": 1.3}, limit_over_ours=True)
        self.assertEqual(result(slower, ours=samples(8), limit=samples(10))["ratios"]["limit"]["median"], 1.25)
        self.assertEqual(result(slower, ours=samples(8), limit=samples(10))["met"], {"limit": True})
        self.assertEqual(result(slower, ours=samples(5), limit=samples(10))["met"], {"limit": False})

    def test_seconds_of_our_own_have_a_bound(self):
        quick = rows.Row("quick", "", "s", lower_is_better=True, most=0.4)
        self.assertEqual(result(quick, ours=samples(0.4, 0.3, 0.5))["met"], {"ours": True})
        late = result(quick, ours=samples(0.41, 0.3, 0.5), stock=samples(4.1, 3, 5))
        self.assertEqual(late["met"], {"ours": False})
        self.assertEqual(late["ratios"]["stock"]["median"], 10)
        self.assertEqual(tables.own_cell(late), "0.41 s, aim at most 0.4 **missed**")
        self.assertEqual(result(quick, stock=samples(1))["met"], {})

    def test_memory_is_the_largest_of_the_rounds(self):
        self.assertEqual(result(ours=samples(4, 8, 6))["memory_mb"]["ours"], 108)


class Noise(unittest.TestCase):
    def test_quiet_row(self):
        self.assertEqual(result(ours=samples(10, 11, 10), stock=samples(5, 5, 5))["noise"], [])

    def test_spread_other_work_and_few_rounds(self):
        self.assertIn("stock spreads over 50 %", result(ours=samples(10, 15, 10), stock=samples(5, 5, 5))["noise"][0])
        self.assertIn("other work took 1.5 cores", result(others=1.5, ours=samples(1, 1, 1), stock=samples(1, 1, 1))["noise"][0])
        self.assertEqual(result(ours=samples(1, 1), stock=samples(1, 1))["noise"], ["2 round(s)"])


class Cores(unittest.TestCase):
    """`said`: what the program says of one moment after the other."""

    def measured(self, said, most_s=20, values=(1, 2, 3)):
        self.waits, values = [], iter(values)
        said = iter(said)

        def run(seconds):
            self.waits.append(seconds)
            return {"at_once": next(said)}
        self.cores = cores.Cores(run, most_s)
        return self.cores.measured(lambda: {"value": next(values)})

    def test_a_measurement_on_cores_that_are_apart_is_kept(self):
        self.assertEqual(self.measured([1.02, 1.1]), {"value": 1, "at_once": 1.1})
        self.assertEqual((self.waits, self.cores.notes()), ([20, 0], []))

    def test_it_is_taken_again_where_the_cores_were_shared_afterwards(self):
        self.assertEqual(self.measured([1.0, 1.9, 1.0, 1.0]), {"value": 2, "at_once": 1.0})
        self.assertEqual(self.measured([1.0, 1.9, 1.0, 1.9, 1.0, 1.8]), {"value": 3, "at_once": 1.8})

    def test_without_waiting_it_is_taken_once(self):
        self.assertEqual(self.measured([1.9, 1.0], 0), {"value": 1, "at_once": 1.9})
        self.assertEqual(self.waits, [0, 0])

    def test_cores_that_are_never_apart_are_waited_for_once(self):
        self.assertEqual(self.measured([1.9, 1.9, 1.9, 1.9]), {"value": 1, "at_once": 1.9})
        self.assertEqual(self.cores.measured(lambda: {"value": 7})["value"], 7)
        self.assertEqual(self.waits, [20, 0, 0, 0])
        self.assertRegex(self.cores.notes()[0], "not apart within 20 s")

    def test_a_program_that_fails_is_asked_once_and_said(self):
        asked = []
        broken = cores.Cores(lambda seconds: asked.append(seconds) or {"error": "cores: no such file"}, 20)
        self.assertEqual(broken.measured(lambda: {"value": 1}), {"value": 1})
        self.assertEqual(asked, [20])
        self.assertIn("cores: no such file", broken.notes()[0])

    def test_a_side_that_failed_is_not_taken_again(self):
        found = cores.Cores(lambda seconds: {"at_once": 1.0 if seconds else 1.9}, 20).measured(lambda: {"error": "broke"})
        self.assertEqual(found, {"error": "broke"})

    def test_a_row_says_how_many_measurements_had_shared_cores(self):
        apart = {"value": 10, "at_once": 1.0}
        row = result(ours=[apart, apart, {"value": 10, "at_once": 1.94}], stock=[apart] * 3)
        self.assertEqual(row["noise"], ["in 1 of 6 measurements the cores were shared (threads took up to 1.9 times as long)"])
        self.assertEqual(result(ours=[apart] * 3, stock=[apart] * 3)["noise"], [])


class Machine(unittest.TestCase):
    def test_quota(self):
        self.assertIsNone(machine.cores_of_quota("max 100000"))
        self.assertIsNone(machine.cores_of_quota("-1 100000"))
        self.assertIsNone(machine.cores_of_quota(" "))
        self.assertEqual(machine.cores_of_quota("150000 100000"), 1.5)

    def test_the_tightest_group_limits(self):
        with tempfile.TemporaryDirectory() as root:
            def put(path, text):
                file = pathlib.Path(root) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            own = "1:cpu,cpuacct:/jobs/one\n0::/slice/run\n"
            self.assertIsNone(machine.core_limit(own, root))
            put("slice/run/cpu.max", "max 100000\n")
            put("slice/cpu.max", "300000 100000\n")
            self.assertEqual(machine.core_limit(own, root), 3)
            put("cpu,cpuacct/jobs/one/cpu.cfs_quota_us", "125000\n")
            put("cpu,cpuacct/jobs/one/cpu.cfs_period_us", "50000\n")
            self.assertEqual(machine.core_limit(own, root), 2.5)

    def test_notes_name_both_numbers(self):
        self.assertEqual(machine.thread_notes(2, 4, None), [])
        self.assertRegex(machine.thread_notes(4, 2, None)[0], "^4 threads .* 2 core")
        self.assertRegex(machine.thread_notes(2, 4, 1.5)[0], "^2 threads .* 1.5 core")


    def test_classes_of_processors(self):
        avx2 = ["sse2", "sse4_2", "avx", "avx2", "fma"]
        avx512 = avx2 + ["avx512f", "avx512bw", "avx512dq", "avx512vl"]
        for flags, expected in ((avx2, "AVX2"), (avx512, "AVX-512"), (avx512 + ["amx_tile", "amx_bf16"], "AMX"), (avx512[:-1], "AVX2"), ([], "other")):
            self.assertEqual(machine.processor_class(flags), expected)
        self.assertEqual(machine.vector_flags(["fpu", "fma", "avx2", "avx", "sse4_2", "sse2"]), ["avx", "avx2", "fma", "sse4_2"])


class Processes(unittest.TestCase):
    def run_python(self, program, **more):
        return processes.run([sys.executable, "-c", program], **more)

    def test_figures_of_a_number_and_of_lines_of_json(self):
        self.assertEqual(processes.figures_in('2.5\n{"a": 1}\nnoise\n{"b": 2}\n'), {"first": 2.5, "a": 1, "b": 2})
        self.assertEqual(processes.figures_in(""), {})

    def test_memory_and_first_step_of_a_process(self):
        found = self.run_python('import time; x = bytearray(200 << 20); print(\'{"first_step_at": %f}\' % time.monotonic())')
        self.assertGreater(found["memory_mb"], 200)
        self.assertTrue(0 < found["first_step_s"] < 60, found)

    def test_the_begin_of_the_first_slot_is_counted_from_the_start_of_the_process(self):
        found = self.run_python("import json, time; time.sleep(0.2); print(json.dumps({'first_slot_at': time.monotonic(), 'first_step_at': time.monotonic() + 5}))")
        self.assertTrue(0.2 < found["first_slot_s"] < 60, found)
        self.assertTrue(found["first_slot_s"] + 4.9 < found["first_step_s"], found)

    def test_failures_say_how(self):
        self.assertIn("exit status 3: no such shape", self.run_python("import sys; print('no such shape', file=sys.stderr); sys.exit(3)")["error"])
        self.assertIn("signal 9", self.run_python("import os; os.kill(os.getpid(), 9)")["error"])
        self.assertIn("was stopped after 0.2 s", self.run_python("import time; time.sleep(60)", deadline=0.2)["error"])
        self.assertIn("no-such-program", processes.run(["no-such-program"])["error"])

    def test_our_environment_is_that_of_the_program(self):
        ours = processes.our_environment("/plugins")
        self.assertEqual(ours["TENON_PLUGIN_PATH"], "/plugins")
        self.assertTrue("GOMP_SPINCOUNT" in ours or "OMP_WAIT_POLICY" in ours)

    def test_the_two_environments_of_a_peer(self):
        os.environ["MALLOC_TRIM_THRESHOLD_"] = "1"
        try:
            self.assertNotIn("MALLOC_TRIM_THRESHOLD_", processes.peer_environment(False))
            tuned = processes.peer_environment(True, "/some/library.so")
        finally:
            del os.environ["MALLOC_TRIM_THRESHOLD_"]
        self.assertEqual((tuned["MALLOC_TRIM_THRESHOLD_"], tuned["LD_PRELOAD"]), ("4000000000", "/some/library.so"))


class Preparation(unittest.TestCase):
    def test_an_interpreter_without_torch_has_a_reason(self):
        self.assertEqual(prepare.torch_of("/no/such/python")[0], None)
        self.assertIn("No such file", prepare.torch_of("/no/such/python")[1])

    def test_vendor_check_on_amd_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(prepare.vendor_check(pathlib.Path(folder), amd=False)[0])
            library, what = prepare.vendor_check(pathlib.Path(folder), amd=True)
        self.assertTrue(library is not None or "no preloaded library" in what, what)


class Rows(unittest.TestCase):
    def test_names_are_unique_and_unknown_ones_are_refused(self):
        names = [row.name for group in rows.all_groups() for row in group.rows]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual([group.rows[0].name for group in rows.chosen(["lenet5"])], ["lenet5"])
        with self.assertRaisesRegex(SystemExit, "no row 'lenet6'; there are: .*lenet5"):
            rows.chosen(["lenet5", "lenet6"])

    def test_patterns(self):
        def names(*patterns):
            return [row.name for group in rows.chosen(patterns) for row in group.rows if rows.matches(row.name, patterns)]
        self.assertEqual(names("dlrm-*"), ["dlrm-fp32", "dlrm-bf16"])
        self.assertEqual(names("resnet??", "*-save"), ["resnet18", "checkpoint-save"])
        self.assertEqual(names("generate"), ["generate"])
        self.assertEqual(len(names()), sum(len(group.rows) for group in rows.all_groups()))
        with self.assertRaisesRegex(SystemExit, "no row 'LeNet.'"):
            rows.chosen(["LeNet*"])

    def test_aims_depend_on_the_processor(self):
        def row(name, flags):
            return next(row for group in rows.all_groups(flags) for row in group.rows if row.name == name)
        avx2 = {"avx2", "fma"}
        avx512 = avx2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
        self.assertEqual([row("nvfp4-step", flags).aims["limit"] for flags in (avx2, avx512, avx512 | {"amx_tile", "amx_bf16"}, None)], [1.4, 1.15, 1.25, 1.25])
        self.assertEqual([row("quantize-eager", flags).aims["limit"] for flags in (avx2, avx512)], [0.5, 0.6])
        self.assertEqual(row("gpt-bf16", avx512 | {"avx512_bf16"}).aims, {"stock": 2.0, "tuned": 1.5, "limit": 0.65})
        emulated = row("gpt-bf16", avx512)
        self.assertTrue(emulated.limit_over_ours)
        self.assertEqual(emulated.aims, {"limit": 1.15})

    def test_values_of_sides(self):
        for group in rows.all_groups():
            if group.rows[0].name == "all-reduce":
                self.assertEqual(group.value(group.rows[0], "stock", {"bytes": 2e9, "first": 4.0}), 0.5)
                self.assertEqual(group.limit(group.rows[0], {"gb_per_s": 1.0, "of_copy": 0.25}), 4.0)
            if group.rows[0].name == "checkpoint-save":
                self.assertEqual(group.value(group.rows[1], "ours", {"save_gb_per_s": 1, "load_gb_per_s": 2}), 2)
                self.assertEqual(group.limit(group.rows[0], {"save_gb_per_s": 1, "save_of_raw": 0.5}), 2)


class Sizes(unittest.TestCase):
    """A side decides by a trial how many steps it takes, once."""

    def context(self, seconds_per_step=None, late=False):
        self.asked = []

        def ours(program, what, workload, *words):
            self.asked.append((what, int(words[words.index("--steps") + 1])))
            if what == "describe":
                return {"per_step": 10, "script": "peer.py", "arguments": "--steps 3"}
            return {"per_step": 10, "seconds_per_step": seconds_per_step}

        def peer(tuned, script, *words):
            return {"error": "stopped", "late_after_s": 60} if late else {"seconds_per_step": seconds_per_step}
        return rows.Context(ours, peer, True, 2, False, "/tmp", 3)

    def side(self, name):
        return rows.steps_group("example", {}).sides[name]

    def test_steps_fill_the_seconds_and_stay_within_bounds(self):
        for seconds_per_step, steps in ((0.1, 40), (10, rows.FEWEST), (1e-9, rows.MOST)):
            context = self.context(seconds_per_step)
            self.side("ours")(context)
            self.side("ours")(context)
            self.assertEqual(self.asked, [("train", rows.TRIAL_STEPS), ("train", steps), ("train", steps)])

    def test_the_first_slot_is_measured_without_a_step(self):
        asked = []

        def ours(program, *words):
            asked.append(words)
            return {"script": "peer.py", "arguments": "--steps 8 --layers 2"} if words[0] == "describe" else {"first_slot_s": 0.1}

        def peer(tuned, script, *words):
            asked.append((script, *words))
            return {"first_slot_s": 2.0}
        context = rows.Context(ours, peer, True, 2, False, "/tmp")
        group = rows.first_slot_group("example", "gpt-tiny", 0.15, {})
        self.assertEqual(group.value(group.rows[0], "ours", group.sides["ours"](context)), 0.1)
        self.assertEqual(group.value(group.rows[0], "stock", group.sides["stock"](context)), 2.0)
        self.assertEqual(asked[0], ("start", "gpt-tiny", "--threads", "2"))
        self.assertEqual(asked[2], ("peer.py", "--steps", "8", "--layers", "2", "--steps", "0"))  # the last one counts

    def test_a_side_that_is_stopped_has_a_bound(self):
        found = self.side("stock")(self.context(late=True))
        self.assertEqual((found["error"], found["at_most"]), ("stopped", 10 * rows.TRIAL_STEPS / 60))
        stopped = [{"error": "stopped", "at_most": 0.5}]
        self.assertEqual(result(ours=samples(10), stock=stopped)["ratios_at_least"], {"stock": 20})
        self.assertEqual(tables.ratio_cell(None, 2, None, 20), "> 20.0")
        self.assertEqual(tables.ratio_cell(None, 2, None), "-")


class Tables(unittest.TestCase):
    def comparison(self):
        return {"date": "2026-01-02", "quick": False, "rounds": 3, "torch": "9.9", "notes": ["a note"],
                "machine": {"processor": "Example", "features": ["AMX"], "cores": 2, "threads": 2, "notes": []},
                "rows": [result(ours=samples(10, 12, 11), stock=samples(5, 6, 11), limit=samples(20, 24, 44)),
                         result(ours=samples(1, 1, 1), stock=samples(None))]}

    def test_markdown(self):
        text = tables.markdown(self.comparison())
        line = next(line for line in text.splitlines() if "`example`" in line)
        self.assertEqual(line, "| `example`<br>an example | 11.0 samples/s | 2.00 (1.00 to 2.00), aim 2 | - | 0.50 (0.25 to 0.50), aim 0.5: products alone "
                               "| 112 / 111 / - | noisy |")
        self.assertIn("- `example`: stock spreads over 50 %", text)
        self.assertIn("stock: broke", text)
        self.assertIn("- a note", text)
        self.assertEqual({line.count("|") for line in text.splitlines() if line.startswith("|")}, {8})

    def test_a_missed_aim_is_said(self):
        self.assertEqual(tables.ratio_cell({"median": 1.5, "lowest": 1.4, "highest": 1.6, "rounds": 3}, 2, False), "1.50 (1.40 to 1.60), aim 2 **missed**")

    def test_numbers(self):
        self.assertEqual([tables.number(x) for x in (None, 12345.6, 12.34, 1.234, 0.0123)], ["-", "12,346", "12.3", "1.23", "0.012"])

    def test_figure_is_well_formed_and_holds_every_ratio(self):
        tree = xml.etree.ElementTree.fromstring(tables.figure(self.comparison()))
        circles = [node for node in tree.iter() if node.tag.endswith("circle")]
        self.assertEqual(len(circles), 2 + 1)
        empty = {**self.comparison(), "rows": []}
        xml.etree.ElementTree.fromstring(tables.figure(empty))


class Merge(unittest.TestCase):
    def comparison(self, kind, at, names, value=10, **more):
        made = [result(rows.Row(name, "a row", "samples/s"), ours=samples(value, value, value), stock=samples(5, 5, 5)) for name in names]
        return {"date": at[:10], "at": at, "quick": False, "rounds": 3, "torch": "9.9", "versions": {"torch": "9.9", "oneDNN": "3.1"}, "tenon": "abc", "notes": ["a note"],
                "machine": {"processor": f"Example {kind}", "class": kind, "flags": ["avx"], "features": [], "cores": 2, "threads": 2, "notes": []}, "rows": made, **more}

    def test_a_table_per_class_best_first(self):
        text = merge.markdown([self.comparison("AVX2", "2026-01-02T00:00:00", ["one"]), self.comparison("AMX", "2026-01-01T00:00:00", ["one", "two"])])
        self.assertEqual([line for line in text.splitlines() if line.startswith("#")], ["### AMX", "### AVX2"])
        self.assertEqual(sum(line.startswith("| row") for line in text.splitlines()), 2)
        self.assertIn("- Measured 2026-01-02 on 2 core(s) of Example AVX2", text)
        self.assertIn("PyTorch 9.9 (oneDNN 3.1); Tenon abc. Flags: avx.", text)
        self.assertNotIn("(a)", text)

    def test_a_row_is_the_newest_of_its_class(self):
        old = self.comparison("AMX", "2026-01-01T08:00:00", ["one", "two"], 10)
        new = self.comparison("AMX", "2026-01-01T09:00:00", ["two", "three"], 20)
        for order in ([old, new], [new, old]):
            found = {line.split("`")[1]: line for line in merge.markdown(order).splitlines() if line.startswith("| `")}
            self.assertEqual(sorted(found), ["one", "three", "two"])
            self.assertIn("10.0 samples/s", found["one"])
            self.assertIn("20.0 samples/s", found["two"])
            letters = {name: line.rsplit("|", 2)[1].strip() for name, line in found.items()}
            self.assertEqual(letters["two"], letters["three"])
            self.assertNotEqual(letters["one"], letters["two"])
        whole = self.comparison("AMX", "2026-01-01T10:00:00", ["one", "two", "three"], 30)
        self.assertEqual(merge.markdown([old, new, whole]).count("- Measured"), 1)

    def test_files_of_earlier_versions_and_no_comparisons(self):
        old = self.comparison("AMX", "2026-01-01T08:00:00", ["one"])
        del old["at"], old["versions"], old["tenon"], old["machine"]["class"], old["machine"]["flags"]
        old["machine"]["features"] = ["AVX-512", "AMX"]
        self.assertTrue(merge.markdown([old]).startswith("### AMX"))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "comparison.json"
            for text, said in (("{", "cannot read"), ("{}", "has no date, rounds"), ("[]", "is no comparison.json")):
                path.write_text(text)
                with self.assertRaisesRegex(SystemExit, said):
                    merge.read(path)
            with self.assertRaisesRegex(SystemExit, "cannot read"):
                merge.read(path.parent / "absent")


def main():
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1
