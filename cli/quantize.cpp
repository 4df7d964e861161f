// tenon quantize: converts a matrix to a number format and back, without training. The arithmetic is that of
// the precision component that offers the format; no format is known by name here. First the drawing of
// magnitudes before and after, then that component, then the folder of arrays, statistics and the drawing
// that one matrix becomes, then the command.
#include "command_line.hpp"

#include "ab/format.hpp"
#include "ab/svg.hpp"
#include "quantize_input.hpp"

#include "base/json_writer.hpp"
#include "base/process_facts.hpp"
#include "config/words.hpp"
#include "loop/named_component.hpp"
#include "offline_host.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/precision.hpp>
#include <tenon/registry.hpp>
#include <tenon/sdk/npy.hpp>
#include <tenon/sdk/quantizer.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tenon::cli {
namespace {

// histogram.svg: the frequency of each magnitude before and after, on one logarithmic axis, and the levels of
// the format beside the largest element. Two panels with separate scales: rounded values fall into few bins,
// and a common scale would flatten the input.

struct HistogramText {
  std::string title;  ///< "h.0.weight: nvfp4"
  std::string note;   ///< below it
};

/// Counts of log2 |x| in bins of an eighth of a binade.
struct MagnitudeCounts {
  double first = 0;  ///< log2 where bin 0 begins
  std::vector<std::int64_t> bins;
  std::int64_t zero = 0, below = 0, non_finite = 0, elements = 0;
};
constexpr double kBinsPerBinade = 8;

constexpr double kWidth = 860, kHeight = 520, kLeft = 64, kRight = 846;
constexpr double kMostBinades = 28;  // further down every element of a block with the largest element is lost
constexpr std::size_t kMostLevels = 600;

constexpr const char* kStyle = R"css(<style>
svg{background:var(--page);--page:#fff;--ink:#1c2126;--soft:#5a646e;--rule:#c9cfd5;--grid:#eceff2;--in:#0072b2;--out:#d55e00}
@media (prefers-color-scheme:dark){svg{--page:#14171a;--ink:#e4e7ea;--soft:#9ba5af;--rule:#3a424a;--grid:#23292f;--in:#56b4e9;--out:#ff9248}}
text{fill:var(--soft);font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif}
.title{fill:var(--ink);font-size:16px;font-weight:600}.label{fill:var(--ink)}
.grid{stroke:var(--grid)}.axis{stroke:var(--rule)}
.in{fill:var(--in)}.out{fill:var(--out)}.level{stroke:var(--ink);stroke-opacity:.75}
</style>
)css";

/// 2 to a whole power with digits above the line.
std::string power_of_two(int exponent) {
  static constexpr const char* kDigits[] = {"\u2070", "\u00b9", "\u00b2", "\u00b3", "\u2074",
                                            "\u2075", "\u2076", "\u2077", "\u2078", "\u2079"};
  std::string text = "2";
  if (exponent < 0) text += "\u207b";
  for (const char c : std::to_string(std::abs(exponent))) text += kDigits[c - '0'];
  return text;
}

std::string share(std::int64_t part, std::int64_t whole) {
  if (part == 0) return "none";
  const double percent =
      100.0 * static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(1, whole));
  return percent < 0.005 ? "< 0.01 %" : fmt::format("{:.2f} %", percent);
}

struct Axis {
  double first, last;
  double x(double log2_value) const {
    return kLeft + (log2_value - first) / (last - first) * (kRight - kLeft);
  }
};

void draw_panel(ab::Svg& svg, const Axis& axis, const MagnitudeCounts& counts, double top, double bottom,
                const char* css_class, const std::string& label) {
  std::int64_t most = 1;
  for (const std::int64_t count : counts.bins) most = std::max(most, count);
  for (const double part : {0.0, 0.5, 1.0}) {
    const double y = bottom - part * (bottom - top);
    svg.line({kLeft, y}, {kRight, y}, part == 0 ? "axis" : "grid");
    if (part > 0) {
      svg.text({kLeft - 8, y + 4},
               fmt::format("{:.2g}%",
                           100 * part * static_cast<double>(most) / static_cast<double>(counts.elements)),
               "tick", ab::Anchor::kEnd);
    }
  }
  for (std::size_t i = 0; i < counts.bins.size(); ++i) {
    if (counts.bins[i] == 0) continue;
    const double low = axis.x(axis.first + static_cast<double>(i) / kBinsPerBinade);
    const double high = axis.x(axis.first + static_cast<double>(i + 1) / kBinsPerBinade);
    // One element among millions must be visible, too.
    const double height =
        std::max(1.0, static_cast<double>(counts.bins[i]) / static_cast<double>(most) * (bottom - top));
    svg.rect({low, bottom - height}, std::max(0.8, high - low - 0.6), height, css_class);
  }
  std::string text = fmt::format("{}: zero {}", label, share(counts.zero, counts.elements));
  if (counts.below > 0) text += fmt::format(", further left {}", share(counts.below, counts.elements));
  if (counts.non_finite > 0)
    text += fmt::format(", not finite {}", share(counts.non_finite, counts.elements));
  svg.text({kLeft, top - 8}, text, "label", ab::Anchor::kStart);
}

void draw_levels(ab::Svg& svg, const Axis& axis, std::span<const double> levels, double top) {
  for (const double level : levels) {
    const double x = axis.x(std::log2(level));
    if (std::isfinite(x) && x >= kLeft && x <= kRight) svg.line({x, top}, {x, top + 16}, "level");
  }
}

/// Bins cover [first, last); magnitudes under 2^first count as `below`, those at or over 2^last in the last
/// bin.
MagnitudeCounts count_magnitudes(std::span<const float> values, double first, double last) {
  MagnitudeCounts counts;
  counts.first = first;
  const auto bins = static_cast<std::int64_t>(std::ceil((last - first) * kBinsPerBinade));
  counts.bins.assign(std::max<std::int64_t>(1, bins), 0);
  counts.elements = static_cast<std::int64_t>(values.size());
  for (const float value : values) {
    if (value == 0) {
      ++counts.zero;
    } else if (!std::isfinite(value)) {
      ++counts.non_finite;
    } else {
      const double place = (std::log2(std::abs(static_cast<double>(value))) - first) * kBinsPerBinade;
      if (place < 0)
        ++counts.below;
      else
        ++counts.bins[std::min(counts.bins.size() - 1, static_cast<std::size_t>(place))];
    }
  }
  return counts;
}

/// levels: magnitudes that a block with the largest element can hold, empty = not drawn. A file of its own:
/// style inside, light and dark, no script. Values that are not finite are counted in words.
std::string quantize_histogram(const HistogramText& text, std::span<const float> input,
                               std::span<const float> output, std::span<const double> levels) {
  double largest = 0, smallest = 0;
  for (const std::span<const float> values : {input, output}) {
    for (const float value : values) {
      const double magnitude = std::abs(static_cast<double>(value));
      if (!std::isfinite(magnitude) || magnitude == 0) continue;
      largest = std::max(largest, magnitude);
      smallest = smallest == 0 ? magnitude : std::min(smallest, magnitude);
    }
  }
  if (largest == 0) largest = smallest = 1;
  Axis axis{std::floor(std::log2(smallest)), std::floor(std::log2(largest)) + 1};
  axis.first = std::max(axis.first, axis.last - kMostBinades);

  ab::Svg svg(kWidth, kHeight, "chart", text.title);
  svg.text({kLeft, 28}, text.title, "title", ab::Anchor::kStart);
  svg.text({kLeft, 48}, text.note, "note", ab::Anchor::kStart);
  const int step = axis.last - axis.first > 14 ? 2 : 1;
  for (int e = static_cast<int>(axis.first); e <= static_cast<int>(axis.last); ++e) {
    svg.line({axis.x(e), 90}, {axis.x(e), 470}, "grid");
    if ((e - static_cast<int>(axis.first)) % step == 0)
      svg.text({axis.x(e), 488}, power_of_two(e), "tick", ab::Anchor::kMiddle);
  }
  draw_panel(svg, axis, count_magnitudes(input, axis.first, axis.last), 90, 250, "in", "input");
  draw_panel(svg, axis, count_magnitudes(output, axis.first, axis.last), 300, 430, "out", "became");
  if (!levels.empty() && levels.size() <= kMostLevels) {
    draw_levels(svg, axis, levels, 438);
    svg.text({kRight, 470}, fmt::format("{} levels of a block that holds the largest element", levels.size()),
             "note", ab::Anchor::kEnd);
  }
  svg.text({(kLeft + kRight) / 2, 510}, "magnitude", "label", ab::Anchor::kMiddle);
  std::string out = svg.take();
  out.insert(out.find('\n') + 1, kStyle);
  return out + "\n";
}

/// Choices of the user; empty texts and zeros select the format's default.
struct QuantizeChoice {
  std::string format, scale, rounding, transform;
  std::int64_t block_rows = 0, block_columns = 0;
  std::uint64_t seed = 0;
};

/// Results in host memory.
struct QuantizedMatrix {
  QuantizeShape shape;
  QuantizeReport report;
  std::vector<std::uint8_t> codes;
  std::vector<std::byte> block_scales;  ///< empty: the format has none
  std::vector<float> dequantized;
};

/// The precision component that offers a number format, and one matrix put through it on the device `cpu`.
/// Creates and queries every precision component, because a plugin's tag does not list formats.
class FormatUser {
 public:
  /// Throws Error(kConfig) that lists all formats if no component offers this one.
  FormatUser(Registry& registry, const std::string& format);

  /// "precision.nvfp4"
  std::string_view component() const { return name_; }
  /// values: [rows, columns]. Errors are those of the component, prefixed with `what`.
  QuantizedMatrix run(const QuantizeChoice& choice, const std::string& what, const std::vector<float>& values,
                      std::int64_t rows, std::int64_t columns);

 private:
  template <typename Interface>
  train::NamedComponent<Interface> make(Registry& registry, const std::string& type);

  OfflineHost host_;
  std::vector<std::unique_ptr<ResolvedOptions>> options_;
  train::NamedComponent<Device> device_;
  train::NamedComponent<Precision> precision_;
  Quantizer* quantizer_ = nullptr;
  std::string name_;
};

/// Memory of a device that is given back.
class DeviceMemory {
 public:
  DeviceMemory(Device& device, const Shape& shape, DType dtype) : device_(device) {
    view_.shape = shape;
    view_.dtype = dtype;
    view_.space = device.space();
    if (view_.elements() > 0) view_.data = device.allocate(view_.bytes());
  }
  ~DeviceMemory() {
    if (view_.data != nullptr) device_.release(view_.data, view_.bytes());
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  TensorView view() const { return view_; }
  TensorView at(void* host) const { return {host, view_.shape, view_.dtype, MemorySpace::kHost}; }
  void load(const void* host) { device_.copy(at(const_cast<void*>(host)), view_); }
  void store(void* host) {
    if (view_.data == nullptr) return;
    device_.copy(view_, at(host));
    device_.synchronize();
  }

 private:
  Device& device_;
  TensorView view_;
};

template <typename Interface>
train::NamedComponent<Interface> FormatUser::make(Registry& registry, const std::string& type) {
  Resolution resolved =
      resolve_options(component_request(Value(), registry.describe(Interface::kKind, type), &registry));
  registry.create_inner(*resolved.options, host_);
  options_.push_back(std::move(resolved.options));
  return registry.create<Interface>(type, *options_.back(), host_);
}

FormatUser::FormatUser(Registry& registry, const std::string& format) {
  std::vector<std::string> offered, silent;
  for (const std::string& id : registry.ids(Precision::kKind)) {
    try {
      train::NamedComponent<Precision> precision = make<Precision>(registry, id);
      auto* quantizer = static_cast<Quantizer*>(precision->query(Quantizer::kId));
      if (quantizer == nullptr) continue;
      const std::span<const std::string_view> formats = quantizer->formats();
      offered.insert(offered.end(), formats.begin(), formats.end());
      if (quantizer_ != nullptr || std::find(formats.begin(), formats.end(), format) == formats.end())
        continue;
      quantizer_ = quantizer;
      name_ = "precision." + id;
      precision_ = std::move(precision);
    } catch (const Error& error) {  // one that needs options, or is broken, may not be the requested one
      silent.push_back(fmt::format("precision.{} could not be asked: {}", id, error.what()));
    }
  }
  if (quantizer_ == nullptr) {
    std::sort(offered.begin(), offered.end());
    offered.erase(std::unique(offered.begin(), offered.end()), offered.end());
    fail_config(fmt::format("no precision component offers the format '{}'{}; offered: {}{}{}", format,
                            config::suggestion(format, offered),
                            offered.empty() ? "none" : fmt::format("{}", fmt::join(offered, ", ")),
                            silent.empty() ? "" : "\n  ", fmt::join(silent, "\n  ")));
  }
  device_ = make<Device>(registry, "cpu");
  device_->open({.local_rank = 0, .threads = usable_cores(), .kernels = "auto"});
}

QuantizedMatrix FormatUser::run(const QuantizeChoice& choice, const std::string& what,
                                const std::vector<float>& values, std::int64_t rows, std::int64_t columns) {
  QuantizeRequest request;
  request.format = choice.format;
  request.block_rows = choice.block_rows;
  request.block_columns = choice.block_columns;
  request.scale = choice.scale;
  request.rounding = choice.rounding;
  request.transform = choice.transform;
  request.seed = choice.seed;
  request.rows = rows;
  request.columns = columns;
  QuantizedMatrix result;
  try {
    result.shape = quantizer_->shape(request);
    const QuantizeShape& shape = result.shape;
    if (shape.rows < rows || shape.columns < columns || shape.scale_rows < 0 || shape.scale_columns < 0 ||
        (shape.scale != DType::kU8 && shape.scale != DType::kF32)) {
      fail_plugin(fmt::format("{} answered a shape of {} x {} codes with {} x {} scales of {}", name_,
                              shape.rows, shape.columns, shape.scale_rows, shape.scale_columns,
                              dtype_name(shape.scale)));
    }
    DeviceMemory x(*device_, {rows, columns}, DType::kF32);
    DeviceMemory codes(*device_, {shape.rows, shape.columns}, DType::kU8);
    DeviceMemory scales(*device_, {shape.scale_rows, shape.scale_columns}, shape.scale);
    DeviceMemory dequantized(*device_, {shape.rows, shape.columns}, DType::kF32);
    x.load(values.data());
    result.report =
        quantizer_->run(request, *device_, x.view(), codes.view(), scales.view(), dequantized.view());
    result.codes.resize(codes.view().bytes());
    result.block_scales.resize(scales.view().bytes());
    result.dequantized.resize(dequantized.view().elements());
    codes.store(result.codes.data());
    scales.store(result.block_scales.data());
    dequantized.store(result.dequantized.data());
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}: {}", what, name_, error.what()));
  }
  return result;
}

/// Names of the files in a result's folder; any of them means that a result exists.
constexpr std::array kFiles{"codes.npy",       "block_scales.npy", "tensor_scale.npy",
                            "dequantized.npy", "histogram.svg",    "stats.json"};

/// The writer only reads.
TensorView view_of(const void* data, const Shape& shape, DType dtype) {
  return {const_cast<void*>(data), shape, dtype, MemorySpace::kHost};
}

/// Refuses, with Error(kConfig), a folder that contains results.
void refuse_results(FileSystem& files, const std::string& folder) {
  for (const char* name : kFiles) {
    const std::string path = folder + "/" + name;
    if (files.exists(path))
      fail_config(fmt::format("tenon quantize: {} exists; choose another --out, or add --overwrite", path));
  }
}

/// The six keys of stats.json; a value that is not finite is null.
std::string stats_json(const QuantizeReport& report) {
  JsonWriter json;
  json.begin_object();
  json.member("sqnr_db", report.sqnr_db);
  json.member("mean_relative_error", report.mean_relative_error);
  json.member("underflow_fraction", report.underflow_fraction);
  json.member("saturated_fraction", report.saturated_fraction);
  json.member("amax", report.amax);
  json.member("decision", report.decision);
  json.end_object();
  return json.take();
}

/// Writes the folder; stats.json comes last, so that a folder with it is whole.
void write_quantized(FileSystem& files, const std::string& folder, const SourceMatrix& matrix,
                     const QuantizedMatrix& result, const std::string& histogram) {
  files.make_directories(folder);
  // The old result may have files that the new one lacks.
  for (const char* name : kFiles) remove_tree(files, folder + "/" + name);
  const QuantizeShape& shape = result.shape;
  write_npy(files, folder + "/codes.npy",
            view_of(result.codes.data(), {shape.rows, shape.columns}, DType::kU8));
  if (!result.block_scales.empty()) {
    write_npy(files, folder + "/block_scales.npy",
              view_of(result.block_scales.data(), {shape.scale_rows, shape.scale_columns}, shape.scale));
  }
  write_npy(files, folder + "/tensor_scale.npy", view_of(&result.report.tensor_scale, {}, DType::kF32));
  write_npy(files, folder + "/dequantized.npy",
            view_of(result.dequantized.data(), {shape.rows, shape.columns}, DType::kF32));
  files.write_text_atomically(folder + "/histogram.svg", histogram);
  files.write_text_atomically(folder + "/stats.json", stats_json(result.report));
}

void declare_quantize(po::options_description& options) {
  options.add_options()("format", po::value<std::string>(), "F  number format, e.g. nvfp4");
  options.add_options()("block", po::value<std::string>(), "RxC  rows and columns that share a scale");
  options.add_options()("scale", po::value<std::string>(),
                        "S  rule of the scales: floor, ceil, even, rceil (MX), float, power (fp8_block), or "
                        "of the format's own");
  options.add_options()("rounding", po::value<std::string>(), "rne|sr  to nearest even, or stochastic");
  options.add_options()("transform", po::value<std::string>(),
                        "none|rht16  randomised Hadamard transform along the block first");
  options.add_options()("seed", po::value<std::uint64_t>(), "N  of stochastic rounding; 0 unless given");
  options.add_options()("tensor", po::value<std::string>(),
                        "NAME  of a safetensors file; absent: all, a folder each");
  options.add_options()("out", po::value<std::string>(), "DIR  folder of the results");
  options.add_options()("overwrite", "replace results that exist");
  options.add_options()("json", "print the figures as JSON");
}

/// "RxC"; both at least 1.
void parse_block(const std::string& text, QuantizeChoice& choice) {
  const char *at = text.data(), *end = text.data() + text.size();
  const auto rows = std::from_chars(at, end, choice.block_rows);
  if (rows.ec == std::errc() && rows.ptr != end && *rows.ptr == 'x') {
    const auto columns = std::from_chars(rows.ptr + 1, end, choice.block_columns);
    if (columns.ec == std::errc() && columns.ptr == end && choice.block_rows > 0 && choice.block_columns > 0)
      return;
  }
  fail_config(fmt::format(
      "tenon quantize: --block is '{}', expected rows and columns of a block, such as 1x16 or 128x128",
      text));
}

std::string text_of(const po::variables_map& values, const char* name) {
  return values.count(name) > 0 ? values[name].as<std::string>() : std::string();
}

void check_word(const std::string& option, const std::string& word, const char* first, const char* second) {
  if (word.empty() || word == first || word == second) return;
  fail_config(fmt::format("tenon quantize: --{} is '{}', expected {} or {}", option, word, first, second));
}

QuantizeChoice choice_of(const po::variables_map& values) {
  QuantizeChoice choice;
  choice.format = text_of(values, "format");
  choice.scale = text_of(values, "scale");
  choice.rounding = text_of(values, "rounding");
  choice.transform = text_of(values, "transform");
  check_word("rounding", choice.rounding, "rne", "sr");
  check_word("transform", choice.transform, "none", "rht16");
  if (values.count("block") > 0) parse_block(values["block"].as<std::string>(), choice);
  if (values.count("seed") > 0) choice.seed = values["seed"].as<std::uint64_t>();
  return choice;
}

/// Magnitudes that a block can hold whose largest element is `amax`, found with the component: every other
/// element is `amax`, so each block of two or more has that scale, and a fine sweep fills the places between.
/// Empty if the component does not support such a matrix.
std::vector<double> levels_of(FormatUser& user, QuantizeChoice choice, float amax) {
  constexpr std::int64_t kSweep = 8192;
  constexpr double kBinades = 32;
  if (!(amax > 0) || !std::isfinite(amax)) return {};
  std::vector<float> sweep(2 * kSweep, amax);
  for (std::int64_t i = 0; i < kSweep; ++i) {
    sweep[2 * i] = static_cast<float>(amax * std::exp2(-kBinades * static_cast<double>(i) / kSweep));
  }
  choice.rounding = choice.transform = "";
  std::vector<double> levels;
  try {
    const QuantizedMatrix result = user.run(choice, "levels", sweep, 1, 2 * kSweep);
    for (const float value : result.dequantized) {
      if (value > 0 && std::isfinite(value)) levels.push_back(value);
    }
  } catch (const Error&) {
    return {};
  }
  std::sort(levels.begin(), levels.end());
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  return levels;
}

/// One quantized matrix, without its elements.
struct Outcome {
  SourceMatrix matrix;  ///< its values are released
  QuantizeShape shape;
  QuantizeReport report;
  std::string folder;
};

std::string described(const SourceMatrix& matrix) {
  std::string text = fmt::format("{} {}", dtype_name(matrix.dtype), matrix.shape.text());
  if (matrix.shape.rank() != 2) text += fmt::format(" as {} x {}", matrix.rows, matrix.columns);
  if (matrix.dtype != DType::kF32) text += matrix.dtype == DType::kF64 ? ", rounded to f32" : ", as f32";
  return text;
}

/// Elements that are not finite leave figures without a value.
std::string percent(double fraction) {
  return std::isnan(fraction) ? "-" : fmt::format("{:.4g} %", 100 * fraction);
}

std::string decibels(double ratio) {
  if (std::isnan(ratio)) return "-";
  return std::isinf(ratio) && ratio > 0 ? "no error" : fmt::format("{:.2f} dB", ratio);
}

void print_text(const Outcome& outcome, const std::string& input, const QuantizeChoice& choice,
                std::string_view component) {
  const SourceMatrix& matrix = outcome.matrix;
  const QuantizeReport& report = outcome.report;
  const auto row = [](const char* name, const std::string& value) {
    std::cout << fmt::format("  {:<20} {}\n", name, value);
  };
  std::cout << fmt::format("{}: {}\n", matrix.name.empty() ? input : matrix.name, described(matrix));
  std::string format = fmt::format("{} ({})", choice.format, component);
  for (const std::string& word : {choice.scale, choice.rounding, choice.transform})
    if (!word.empty()) format += ", " + word;
  row("format", format);
  if (matrix.non_finite > 0)
    row("not finite", fmt::format("{} of {} elements; figures and results may be NaN", matrix.non_finite,
                                  matrix.rows * matrix.columns));
  row("largest magnitude", fmt::format("{:.6g}", report.amax));
  row("tensor scale", fmt::format("{:.9g}", report.tensor_scale));
  row("SQNR", decibels(report.sqnr_db));
  row("mean relative error", percent(report.mean_relative_error));
  row("became zero", percent(report.underflow_fraction));
  row("saturated", percent(report.saturated_fraction));
  row("decision", report.decision);
  const QuantizeShape& shape = outcome.shape;
  row("written", fmt::format("{}/: codes {} x {}{}, tensor_scale, dequantized, stats, histogram",
                             outcome.folder, shape.rows, shape.columns,
                             shape.scale_rows * shape.scale_columns == 0
                                 ? std::string()
                                 : fmt::format(", block_scales {} x {} {}", shape.scale_rows,
                                               shape.scale_columns, dtype_name(shape.scale))));
}

void add_json(JsonWriter& json, const Outcome& outcome) {
  json.begin_object();
  json.member("tensor", outcome.matrix.name);
  json.member("dtype", dtype_name(outcome.matrix.dtype));
  json.member("shape", outcome.matrix.shape.text());
  json.member("rows", outcome.matrix.rows);
  json.member("columns", outcome.matrix.columns);
  json.member("non_finite", outcome.matrix.non_finite);
  json.member("folder", outcome.folder);
  json.member("scale_rows", outcome.shape.scale_rows);
  json.member("scale_columns", outcome.shape.scale_columns);
  json.member("tensor_scale", static_cast<double>(outcome.report.tensor_scale));
  json.member("sqnr_db", outcome.report.sqnr_db);
  json.member("mean_relative_error", outcome.report.mean_relative_error);
  json.member("underflow_fraction", outcome.report.underflow_fraction);
  json.member("saturated_fraction", outcome.report.saturated_fraction);
  json.member("amax", outcome.report.amax);
  json.member("decision", outcome.report.decision);
  json.end_object();
}

Outcome quantize_one(FileSystem& files, FormatUser& user, const QuantizeChoice& choice, SourceMatrix matrix,
                     const std::string& input, const std::string& folder) {
  const std::string what =
      fmt::format("tenon quantize: '{}'{}, {} x {}", input,
                  matrix.name.empty() ? std::string() : fmt::format(", tensor '{}'", matrix.name),
                  matrix.rows, matrix.columns);
  const QuantizedMatrix result = user.run(choice, what, matrix.values, matrix.rows, matrix.columns);
  const QuantizeReport& report = result.report;
  const HistogramText text{
      fmt::format("{}: {}", matrix.name.empty() ? input : matrix.name, choice.format),
      fmt::format("{}; SQNR {}, mean relative error {}, became zero {}, saturated {}", described(matrix),
                  decibels(report.sqnr_db), percent(report.mean_relative_error),
                  percent(report.underflow_fraction), percent(report.saturated_fraction))};
  const std::vector<double> levels = levels_of(user, choice, static_cast<float>(report.amax));
  write_quantized(files, folder, matrix, result,
                  quantize_histogram(text, matrix.values, result.dequantized, levels));
  matrix.values = {};
  return {std::move(matrix), result.shape, report, folder};
}

int run_quantize(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kQuantize, {"input"}, arguments);
  if (parsed.helped) return 0;
  const po::variables_map& values = parsed.values;
  for (const char* needed : {"input", "format", "out"}) {
    if (values.count(needed) == 0)
      fail_config(fmt::format("tenon quantize: {} is missing; usage: tenon quantize {}",
                              std::string(needed) == "input" ? "the file" : std::string("--") + needed,
                              kQuantize.synopsis));
  }
  const std::string input = values["input"].as<std::vector<std::string>>()[0], out = text_of(values, "out");
  const QuantizeChoice choice = choice_of(values);
  const auto files = make_posix_files();
  const MatrixSource source = [&] {
    try {
      return MatrixSource(*files, input, source_kind(input), text_of(values, "tensor"));
    } catch (const Error& error) {
      throw Error(error.kind(), std::string("tenon quantize: ") + error.what());
    }
  }();
  Runtime runtime;
  runtime.discover({});
  FormatUser user(runtime.registry(), choice.format);

  // One tensor asked for by name needs no folder of its own.
  std::vector<std::string> folders{out};
  if (source.named() && values.count("tensor") == 0) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < source.size(); ++i) names.push_back(source.name(i));
    folders = folder_names(names);
    for (std::string& folder : folders) folder.insert(0, out + "/");
  }
  if (values.count("overwrite") == 0) {
    for (const std::string& folder : folders) refuse_results(*files, folder);
  }
  const bool as_json = values.count("json") > 0;
  JsonWriter json;
  json.begin_object();
  json.member("input", input);
  json.member("format", choice.format);
  json.member("component", user.component());
  json.begin_array("tensors");
  for (std::size_t i = 0; i < source.size(); ++i) {
    const Outcome outcome = quantize_one(*files, user, choice, source.read(i), input, folders[i]);
    if (as_json)
      add_json(json, outcome);
    else
      print_text(outcome, input, choice, user.component());
  }
  json.end_array();
  json.objects("left_out", source.left_out(), [&](const std::string& reason) {
    json.member("reason", reason);
    if (!as_json) std::cout << "left out: " << reason << "\n";
  });
  json.end_object();
  if (as_json) std::cout << json.take();
  return 0;
}

}  // namespace

const Command kQuantize{"quantize", "IN.npy|IN.safetensors --format F --out DIR [options]",
                        "Put a matrix through a number format and write what became of it.", run_quantize,
                        declare_quantize};

}  // namespace tenon::cli
