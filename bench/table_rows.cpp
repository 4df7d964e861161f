// Does a step depend on how many rows the tables have? The same model reads the same number of rows per step
// out of tables of 10^4 to 10^7 rows, once with repeated accesses like those of clicks and once uniformly
// over the tables. Prints the time of a step relative to the smallest tables, and draws it. Usage: table_rows
// [--rounds N] [--steps N] [--threads N]; writes table_rows.svg.
#include "step_bench.hpp"

#include <cmath>
#include <fstream>

namespace {

using namespace tenon;
using bench::Settings;

constexpr double kBatch = 2048;
const std::vector<std::int64_t> kRows = {10'000, 100'000, 1'000'000, 10'000'000};

std::string config_text(std::int64_t rows, double exponent, const Settings& settings) {
  return fmt::format(R"([run]
name = "bench"
steps = {0}
log_every = {1}
eval_batches = 1
[device]
type = "cpu"
threads = {2}
[data]
type = "synthetic_ctr"
tables = 4
rows = [{3}]
exponent = {4}
batch = {5:.0f}
val_samples = 2048
[model]
type = "dlrm"
bottom = [16]
top = [16, 1]
[optimizer]
type = "rowwise_adagrad"
lr = 0.02
)",
                     settings.steps, settings.steps / 2, settings.threads, rows, exponent, kBatch);
}

struct Curve {
  std::string name;
  double exponent;
  std::vector<double> relative;
};

/// Time of a step over that of the smallest tables, against the number of rows.
void draw(const std::vector<Curve>& curves, const char* path) {
  constexpr double kWidth = 480, kHeight = 260, kLeft = 60, kBottom = 40, kTop = 30, kLargest = 4;
  const auto x = [&](std::size_t i) {
    return kLeft + (kWidth - kLeft - 90) * static_cast<double>(i) / static_cast<double>(kRows.size() - 1);
  };
  const auto y = [&](double value) {
    return kHeight - kBottom - (kHeight - kBottom - kTop) * std::min(value, kLargest) / kLargest;
  };
  std::ofstream svg(path);
  svg << fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" "
      "font-size=\"12\"><rect width=\"{0}\" height=\"{1}\" fill=\"white\"/><text x=\"{2}\" y=\"18\">time of "
      "a step, "
      "relative to 10,000 rows</text>\n",
      kWidth, kHeight, kLeft);
  for (int tick = 0; tick <= 4; ++tick) {
    svg << fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\" stroke=\"#ddd\"/><text x=\"{3}\" "
        "y=\"{4}\">{5}</text>\n",
        kLeft, kWidth - 90, y(tick), kLeft - 18, y(tick) + 4, tick);
  }
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    svg << fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">10^{}</text>\n", x(i),
                       kHeight - kBottom + 18,
                       static_cast<int>(std::log10(static_cast<double>(kRows[i])) + 0.5));
  }
  svg << fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">rows of each of 4 tables</text>\n",
                     kWidth / 2 - 20, kHeight - 6);
  const char* colours[] = {"#0b6e99", "#c2410c"};
  for (std::size_t c = 0; c < curves.size(); ++c) {
    std::string points;
    for (std::size_t i = 0; i < kRows.size(); ++i)
      points += fmt::format("{:.1f},{:.1f} ", x(i), y(curves[c].relative[i]));
    svg << fmt::format(
        "<polyline points=\"{0}\" fill=\"none\" stroke=\"{1}\" stroke-width=\"2\"/><text x=\"{2:.1f}\" "
        "y=\"{3:.1f}\" "
        "fill=\"{1}\">{4}</text>\n",
        points, colours[c], x(kRows.size() - 1) + 6, y(curves[c].relative.back()) + 4, curves[c].name);
  }
  svg << "</svg>\n";
}

int run(const Settings& settings) {
  std::vector<Curve> curves = {{"power law", 1.2, {}}, {"everywhere", 0.0, {}}};
  fmt::print("4 tables of width 16, batch {:.0f}, {} thread(s): time of a step relative to {} rows\n", kBatch,
             settings.threads, kRows[0]);
  for (Curve& curve : curves) {
    std::vector<std::vector<double>> times(kRows.size());
    for (int round = 0; round < settings.rounds; ++round) {
      for (std::size_t i = 0; i < kRows.size(); ++i) {
        times[i].push_back(kBatch / bench::our_rate(config_text(kRows[i], curve.exponent, settings),
                                                    "train/samples_per_s", nullptr));
      }
    }
    fmt::print("{} (exponent {}):", curve.name, curve.exponent);
    for (std::size_t i = 0; i < kRows.size(); ++i) {
      std::vector<double> ratios;
      for (std::size_t round = 0; round < times[i].size(); ++round)
        ratios.push_back(times[i][round] / times[0][round]);
      curve.relative.push_back(bench::median(ratios));
      fmt::print(" {} rows {}{}", kRows[i], bench::spread(ratios), i + 1 < kRows.size() ? "," : "\n");
    }
    std::fflush(stdout);
  }
  draw(curves, "table_rows.svg");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tenon::bench::run_program("table_rows", argc, argv, {.rounds = 3, .steps = 200}, run);
}
