"""Tests of the comparison's own logic on canned figures: no program of ours, no peer, no clock that counts."""
import os
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from . import figures, machine, prepare, processes, rows, tables

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

    def test_memory_is_the_largest_of_the_rounds(self):
        self.assertEqual(result(ours=samples(4, 8, 6))["memory_mb"]["ours"], 108)


class Noise(unittest.TestCase):
    def test_quiet_row(self):
        self.assertEqual(result(ours=samples(10, 11, 10), stock=samples(5, 5, 5))["noise"], [])

    def test_spread_other_work_and_few_rounds(self):
        self.assertIn("stock spreads over 50 %", result(ours=samples(10, 15, 10), stock=samples(5, 5, 5))["noise"][0])
        self.assertIn("other work took 1.5 cores", result(others=1.5, ours=samples(1, 1, 1), stock=samples(1, 1, 1))["noise"][0])
        self.assertEqual(result(ours=samples(1, 1), stock=samples(1, 1))["noise"], ["2 round(s)"])


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
            rows.chosen(["lenet6"])

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


def main():
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1
