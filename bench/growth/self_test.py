"""Tests of the scaling program's own logic on canned figures: no program of ours, no clock that counts."""
import sys
import unittest
import xml.etree.ElementTree

from . import curves, figure, fits, tables

CURVE = curves.Curve("example", "An example", "things", "all else", "1 per thing & more", (), None)


def samples(rows, expected=lambda x: x, others=0.0):
    """rows: (x, seconds of each round); None stands for a round in which the point broke."""
    return [[{"value": value, "x": x, "expected": expected(x), "memory_mb": 100 + x, "others_cores": others} if value else {"error": "broke"}
             for value in values] for x, values in rows]


def result(rows, **more):
    return fits.result_of(CURVE, samples(rows, **more))


LINEAR = [(1, [1.0, 1.1, 1.0]), (10, [10.0, 10.5, 10.0]), (100, [100.0, 101.0, 100.0])]
SQUARE = [(1, [1.0, 1.1, 1.0]), (10, [100.0, 101.0, 100.0]), (100, [10000.0, 10001.0, 10000.0])]


class Fits(unittest.TestCase):
    def test_exponents_of_powers(self):
        for power in (0, 0.5, 1, 2):
            self.assertAlmostEqual(fits.exponent([(x, 3 * x ** power) for x in (1, 2, 4, 8)]), power)
        self.assertIsNone(fits.exponent([(1, 2)]))
        self.assertIsNone(fits.exponent([(1, 2), (1, 3)]))

    def test_least_squares_and_not_the_ends(self):
        self.assertAlmostEqual(fits.exponent([(1, 1), (2, 1), (4, 2), (8, 4)]), 0.7)

    def test_the_exponent_is_of_medians_and_the_range_of_rounds(self):
        found = result([(1, [1.0, 1.0, 10.0]), (10, [10.0, 10.0, 10.0])])
        self.assertAlmostEqual(found["exponent"], 1)
        self.assertAlmostEqual(found["rounds"]["lowest"], 0)
        self.assertAlmostEqual(found["rounds"]["highest"], 1)

    def test_surprise_only_beyond_the_tolerance(self):
        self.assertFalse(result(LINEAR)["surprise"])
        self.assertTrue(result(SQUARE)["surprise"])
        self.assertEqual(result(SQUARE)["noise"], [])
        nearly = [(x, [x ** 1.09] * 3) for x in (1, 10, 100)]
        self.assertFalse(result(nearly)["surprise"])
        self.assertTrue(fits.result_of(CURVE, samples(nearly), 0.05)["surprise"])

    def test_less_than_expected_is_no_surprise(self):
        self.assertFalse(result(LINEAR, expected=lambda x: x ** 2)["surprise"])

    def test_a_limit_adds_to_the_first_step(self):
        # Of 5 s at the first point the limit takes 1; where it takes 46, 50 are expected.
        limited = curves.Curve("example", "", "", "", "", (), None, limit=True)
        found = fits.result_of(limited, samples([(1, [5.0] * 3), (10, [100.0] * 3)], expected=lambda x: 1 + 5 * (x - 1)))
        self.assertEqual([point["expected"] for point in found["points"]], [5, 50])
        self.assertAlmostEqual(found["expected"], 1)
        self.assertEqual(found["points"][1]["over_expected"], 2)

    def test_points_beside_their_expectation(self):
        self.assertEqual([point["over_expected"] for point in result(SQUARE)["points"]], [1, 10, 100])
        self.assertEqual([point["memory_mb"] for point in result(SQUARE)["points"]], [101, 110, 200])

    def test_noise(self):
        self.assertEqual(result(LINEAR)["noise"], [])
        self.assertIn("other work took up to 1.5 cores", result(LINEAR, others=1.5)["noise"])
        self.assertEqual(result([(1, [1.0, 1.0]), (10, [10.0, 10.0])])["noise"], ["2 whole round(s)"])
        self.assertIn("apart", result([(1, [1.0, 1.0, 2.0]), (10, [10.0, 10.0, 10.0])])["noise"][0])
        self.assertIn("a round without the surprise: 1.00", result([(1, [1.0, 1.0, 1.0]), (10, [10.0, 20.0, 20.0])])["noise"][-1])

    def test_shared_cores_are_a_doubt(self):
        measured = samples(LINEAR)
        measured[1][2]["at_once"] = 1.9
        self.assertIn("in 1 of 1 measurements the cores were shared", fits.result_of(CURVE, measured)["noise"][0])

    def test_what_broke_is_named_and_left_out(self):
        found = result([(1, [1.0] * 3), (10, [10.0] * 3), (100, [None] * 3)])
        self.assertEqual((found["errors"], len(found["points"])), (["broke"], 2))
        self.assertAlmostEqual(found["exponent"], 1)
        self.assertIsNone(result([(1, [None])])["exponent"])


class Curves(unittest.TestCase):
    def test_unknown_names_are_refused(self):
        self.assertEqual([curve.name for curve in curves.chosen(["rows"])], ["rows"])
        with self.assertRaisesRegex(SystemExit, "no curve 'row'; there are: ranks model sequence rows"):
            curves.chosen(["row"])

    def test_ranks_cost_nothing_up_to_the_cores(self):
        curve = curves.ranks_curve()
        self.assertEqual([curve.expected(point.x, {}, 2) for point in curve.points], [1, 1, 2, 4])
        self.assertEqual([curve.expected(point.x, {}, 1.5) for point in curve.points][:2], [1, 2 / 1.5])

    def test_sequences_keep_the_tokens_of_a_step(self):
        for point in curves.sequence_curve().points:
            words = dict(zip(point.words[1::2], point.words[2::2]))
            self.assertEqual(int(words["--context"]) * int(words["--batch"]), 1024)
            self.assertEqual(int(words["--context"]), point.x)


class Output(unittest.TestCase):
    def scaling(self, *results):
        return {"date": "2026-01-02", "quick": False, "rounds": 3, "command": "bench/scaling --rounds 3",
                "machine": {"processor": "Example", "features": ["AMX"], "cores": 2, "threads": 2, "notes": ["a note"]}, "curves": list(results)}

    def test_markdown(self):
        text = tables.markdown(self.scaling(result(LINEAR), result(SQUARE), result([(1, [None])])))
        self.assertIn("| `example`<br>all else | 1.00 (0.98 to 1.00) | 1.00: 1 per thing & more |  |", text)
        self.assertIn("| 2.00 (1.98 to 2.00) | 1.00: 1 per thing & more | **super-linear surprise** |", text)
        self.assertIn("| `example` | 100 | 10,000 s (10,000 s to 10,001 s) | 100 | 200 |", text)
        self.assertIn("0 whole round(s); broke", text)
        self.assertIn("- a note", text)

    def test_sizes_and_seconds(self):
        self.assertEqual([tables.size(x) for x in (8, 1024, 10 ** 4, 1048576, 126e6)], ["8", "1,024", "10 k", "1.05 M", "126 M"])
        self.assertEqual([tables.seconds(x) for x in (0.0123, 2.5)], ["12.3 ms", "2.50 s"])

    def test_figure_is_well_formed_and_holds_every_point(self):
        text = figure.figure(self.scaling(result(LINEAR), result(SQUARE), result([(1, [None])])))
        tree = xml.etree.ElementTree.fromstring(text)
        circles = [node for node in tree.iter() if node.tag.endswith("circle")]
        self.assertEqual(len(circles), 1 + 3 + 3)
        self.assertEqual(text.count("super-linear surprise"), 1)
        xml.etree.ElementTree.fromstring(figure.figure(self.scaling()))

    def test_a_flat_curve_is_drawn_flat(self):
        points = result([(1, [1.0] * 3), (10, [1.02] * 3)], expected=lambda x: 1)["points"]
        low, high = figure.vertical_range(points, [1.0])
        self.assertGreaterEqual(high / low, 9.99)

    def test_ticks(self):
        self.assertEqual([round(tick, 6) for tick in figure.Axis(0.09, 1.1, 0, 1).ticks()], [0.1, 0.2, 0.5, 1])


def main():
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1
