// Shared by the benchmarks of GPUs: their options, a row of their tables, the timing of a call on a device
// that may still be busy when the call returns, and the printing of rows for people and for results.py.
#pragma once

#include "../product_limit.hpp"

#include <tenon/testing/components.hpp>

#include <cstring>
#include <memory>

namespace tenon::bench::gpu {

struct GpuSettings {
  std::string device = "cuda";  ///< or cuda_emulated, cpu
  bool tiny = false;            ///< --scale tiny: sizes that test the path, not the speed
  bool json = false;
  int rounds = 0;  ///< 0: the default of the scale
  std::string python = "python3";
  std::string library;  ///< of gpu_nccl: path of NCCL
  std::string only;     ///< of gpu_families: cases with this in their names
  // Set in the ranks that gpu_nccl starts itself.
  int rank = 0, ranks = 0;
  std::string folder;

  int counted_rounds() const { return rounds > 0 ? rounds : tiny ? 1 : 7; }
  /// Seconds that the calls of one round take together, at least.
  double least() const { return tiny ? 0 : 0.05; }
};

/// A measured result, or the reason why there is none. A limit has the unit of the rate; a ratio is the
/// median over rounds of rates to limits that were measured beside them.
struct Row {
  std::string name = {}, unit = {};
  std::vector<double> seconds = {}, rates = {}, limits = {};
  std::string limit = {};              ///< what limits the rate; "" = none
  double aim = 0;                      ///< of the ratio; 0 = none
  std::vector<double> overheads = {};  ///< time beyond the limit, if that has a unit of its own
  std::string overhead_unit = {};      ///< "us" or "%"
  std::string skipped = {};            ///< the reason
};

inline std::vector<double> ratios(const Row& row) {
  std::vector<double> result;
  for (std::size_t i = 0; i < row.limits.size(); ++i) result.push_back(row.rates[i] / row.limits[i]);
  return result;
}

/// Mean of calls that take `least` seconds together, until the device has completed all of them, after one
/// that warms up.
template <typename Call>
double seconds_on(Device& device, double least, Call&& call) {
  call();
  device.synchronize();
  for (int calls = 1;; calls *= 2) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    device.synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (seconds >= least) return seconds / calls;
  }
}

/// Fills the matrix with repeated numbers of about one: on zeros products draw less power and run faster.
inline void fill(Device& device, const TensorView& view) {
  constexpr std::uint32_t kPattern = 65521;
  const std::size_t width = dtype_bits(view.dtype) / 8;
  std::vector<std::byte> bytes(view.bytes());
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < bytes.size() / width; ++i) {
    if (i % kPattern == 0) state = 1;
    state = state * 1664525u + 1013904223u;
    const std::uint32_t random = state >> 9, sign = random >> 22;
    // A sign, the exponent of [1/2, 1) and random bits of the mantissa.
    std::uint32_t bits = (sign << 31) | 0x3f000000u | (random & 0x7fffffu);
    if (view.dtype == DType::kBF16) bits >>= 16;
    if (view.dtype == DType::kF16) bits = (sign << 15) | 0x3800u | (random & 0x3ffu);
    if (view.dtype == DType::kF8E4M3) bits = (sign << 7) | 0x30u | (random & 7u);
    std::memcpy(bytes.data() + i * width, &bits, width);
  }
  device.copy({bytes.data(), view.shape, view.dtype, MemorySpace::kHost}, view);
  device.synchronize();
}

inline std::string json_text(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result + '"';
}

/// `features`: the device's own description.
inline void print_rows(const char* program, const GpuSettings& settings, const std::string& features,
                       const std::vector<Row>& rows) {
  const std::string note =
      settings.device == "cuda_emulated" ? "emulated on the host: these times say nothing of a GPU" : "";
  if (!settings.json) {
    fmt::print("{}: device {} ({}), {} scale{}\n", program, settings.device, features,
               settings.tiny ? "tiny" : "full", note.empty() ? "" : "; " + note);
    for (const Row& row : rows) {
      if (!row.skipped.empty()) {
        fmt::print("{:<44} skipped: {}\n", row.name, row.skipped);
        continue;
      }
      fmt::print("{:<44} {:>12.3f} us  {} {}", row.name, 1e6 * median(row.seconds), spread(row.rates),
                 row.unit);
      if (!row.limits.empty()) fmt::print(", {} of {}", spread(ratios(row)), row.limit);
      if (!row.overheads.empty()) fmt::print(", {} {} more", spread(row.overheads), row.overhead_unit);
      if (row.aim > 0) fmt::print(", aim {:g}{}", row.aim, median(ratios(row)) < row.aim ? ": missed" : "");
      fmt::print("\n");
    }
    return;
  }
  fmt::print("{{\"program\": {}, \"device\": {}, \"features\": {}, \"scale\": {}, \"note\": {}, \"rows\": [",
             json_text(program), json_text(settings.device), json_text(features),
             json_text(settings.tiny ? "tiny" : "full"), json_text(note));
  const auto three = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return fmt::format("[{:.9g}, {:.9g}, {:.9g}]", values.front(), values[values.size() / 2], values.back());
  };
  const char* separator = "\n";
  for (const Row& row : rows) {
    fmt::print("{}{{\"name\": {}", separator, json_text(row.name));
    separator = ",\n";
    if (!row.skipped.empty()) {
      fmt::print(", \"skipped\": {}}}", json_text(row.skipped));
      continue;
    }
    fmt::print(", \"unit\": {}, \"seconds\": {}, \"rate\": {}", json_text(row.unit), three(row.seconds),
               three(row.rates));
    if (!row.limits.empty())
      fmt::print(", \"limit\": {}, \"limit_rate\": {}, \"ratio\": {}", json_text(row.limit),
                 three(row.limits), three(ratios(row)));
    if (row.aim > 0) fmt::print(", \"aim\": {:g}", row.aim);
    if (!row.overheads.empty())
      fmt::print(", \"overhead\": {}, \"overhead_unit\": {}", three(row.overheads),
                 json_text(row.overhead_unit));
    fmt::print("}}");
  }
  fmt::print("]}}\n");
}

/// Reads the options and runs; returns the exit status of the program `name`.
inline int run_gpu_program(const char* name, int argc, char** argv,
                           const std::function<int(const GpuSettings&)>& run) {
  GpuSettings settings;
  const auto refuse = [&](const std::string& what) {
    fmt::print(stderr,
               "{}: {}; usage: {} [--device cuda|cuda_emulated|cpu] [--scale full|tiny] [--rounds N] [--json "
               "true] [--only WORDS] [--python PYTHON] [--library NCCL]\n",
               name, what, name);
    return 2;
  };
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 >= argc) return refuse(fmt::format("'{}' has no value", option));
    const std::string value = argv[i + 1];
    if (option == "--device")
      settings.device = value;
    else if (option == "--scale" && (value == "full" || value == "tiny"))
      settings.tiny = value == "tiny";
    else if (option == "--rounds")
      settings.rounds = std::atoi(value.c_str());
    else if (option == "--json")
      settings.json = value == "true";
    else if (option == "--only")
      settings.only = value;
    else if (option == "--python")
      settings.python = value;
    else if (option == "--library")
      settings.library = value;
    else if (option == "--rank")
      settings.rank = std::atoi(value.c_str());
    else if (option == "--ranks")
      settings.ranks = std::atoi(value.c_str());
    else if (option == "--folder")
      settings.folder = value;
    else
      return refuse(fmt::format("unknown option '{} {}'", option, value));
  }
  try {
    return run(settings);
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return error.exit_status();
  }
}

}  // namespace tenon::bench::gpu
