// numerics.jsonl of a run, as the observer of that name writes it: read, shown on the run's page, and
// compared with that of another run.
#pragma once

#include <tenon/files.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::report {

/// One operand of one product in one sampled step. Figures that were null are NaN.
struct NumericsLine {
  std::int64_t step = 0, site = 0, first_row = 0, rows = 0, columns = 0;
  std::string layer, gemm, operand, dtype, format, reason, hash;
  double amax = 0, underflow = 0, saturated = 0, sqnr_db = 0, mean_relative_error = 0, scale_binades = 0;
  std::array<std::int64_t, 4> choices{};  ///< blocks of a mixture: kept, e4m3, e5m2, e2m3

  /// "h.0.mlp.c_fc wgrad dy", with the site and the first row where they are not 0.
  std::string name() const;
};

/// Nothing when the run has no such file. A torn last line is ignored; any other line that is not understood
/// is Error(kRun) with path and line number.
std::optional<std::vector<NumericsLine>> read_numerics(FileSystem& files, const std::string& attempt);

/// Section of the page: heat maps of layers by operands, a table by format, reasons. "" without lines.
std::string numerics_section(const std::vector<NumericsLine>& lines);

/// Equal, or both without a number.
bool same_figure(double a, double b);

/// The first differences of two runs, by the bits of operands and by the results of formats.
struct OperandComparison {
  bool in_a = false, in_b = false;  ///< which run has the file
  std::int64_t lines_a = 0, lines_b = 0;
  std::int64_t common = 0;  ///< operands at steps that both have
  std::int64_t equal = 0;   ///< of them with equal bits and equal figures
  struct Pair {
    NumericsLine a, b;
    bool same_bits() const { return a.hash == b.hash && a.dtype == b.dtype; }
  };
  std::optional<Pair> first;       ///< in the order of A's products; absent: nowhere
  std::optional<Pair> first_bits;  ///< the first whose bits differ
  std::vector<Pair> largest;       ///< per operand the step of its largest difference; largest first
};
OperandComparison compare_operands(const std::string& attempt_a, const std::string& attempt_b);
std::string operands_text(const OperandComparison& comparison);

}  // namespace tenon::report
