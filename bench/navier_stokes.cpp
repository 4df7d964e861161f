// Speed of a step of the Navier-Stokes solver on one core, beside the same scheme in NumPy, in turns.
// Usage: navier_stokes [--grid N] [--steps N] [--rounds N] --python PYTHON
#include "navier_stokes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace tenon::navier_stokes;

double seconds_per_step(std::size_t grid, int steps) {
  std::vector<double> forcing(grid * grid, 0.0), start(grid * grid);
  RandomVorticity{grid, 2.5, 7}.draw({1, 0}, start);
  VorticitySolver solver({grid, 1e-3, 1e-3}, forcing);
  solver.set(start);
  for (int i = 0; i < 10; ++i) solver.advance();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) solver.advance();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / steps;
}

/// Measured inside Python; negative when it has no NumPy.
double numpy_seconds(const std::string& python, std::size_t grid, int steps) {
  const std::string command =
      fmt::format("OMP_NUM_THREADS=1 {} {}/bench/navier_stokes_numpy.py --grid {} --steps {}", python,
                  TENON_SOURCE_DIR, grid, steps);
  double seconds = -1;
  if (FILE* pipe = ::popen(command.c_str(), "r")) {
    if (std::fscanf(pipe, "%lf", &seconds) != 1) seconds = -1;
    ::pclose(pipe);
  }
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{
      {"--grid", "64"}, {"--steps", "2000"}, {"--rounds", "5"}, {"--python", "python3"}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  const std::size_t grid = std::atoll(options["--grid"].c_str());
  const int steps = std::atoi(options["--steps"].c_str());
  std::vector<double> ratios;
  for (int round = 0; round < std::atoi(options["--rounds"].c_str()); ++round) {
    const double ours = seconds_per_step(grid, steps),
                 numpy = numpy_seconds(options["--python"], grid, steps / 4);
    if (numpy < 0) {
      fmt::print("skipped: '{}' cannot import numpy; see --python\n", options["--python"]);
      return 0;
    }
    fmt::print("{} x {}: {:.1f} us a step, NumPy {:.1f} us\n", grid, grid, 1e6 * ours, 1e6 * numpy);
    ratios.push_back(numpy / ours);
  }
  std::sort(ratios.begin(), ratios.end());
  fmt::print("NumPy over ours: {:.1f} x ({:.1f} to {:.1f})\n", ratios[ratios.size() / 2], ratios.front(),
             ratios.back());
  return 0;
}
