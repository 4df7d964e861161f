// The lines of a slot are written to the file at once at its end, so that a run that dies leaves whole lines.
#include "numerics.hpp"

#include <tenon/files.hpp>
#include <tenon/options.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <vector>

namespace tenon::numerics {

// Numbers are the shortest texts that read back to the same double; numbers without a JSON form become null.

namespace {

constexpr std::string_view kStep = "{\"step\": ";
constexpr const char* kChoices[] = {"kept", "e4m3", "e5m2", "e2m3"};  // in the order of MorChoice

void number(std::string& out, std::string_view key, double value) {
  if (std::isfinite(value))
    fmt::format_to(std::back_inserter(out), ", \"{}\": {}", key, value);
  else
    fmt::format_to(std::back_inserter(out), ", \"{}\": null", key);
}

void integer(std::string& out, std::string_view key, std::int64_t value) {
  fmt::format_to(std::back_inserter(out), ", \"{}\": {}", key, value);
}

void text(std::string& out, std::string_view key, std::string_view value) {
  fmt::format_to(std::back_inserter(out), ", \"{}\": \"", key);
  for (const char c : value) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20)
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
    else
      out.append(c == '"' || c == '\\' ? 1 : 0, '\\') += c;
  }
  out += '"';
}

/// Extents of an operand as a matrix.
struct Matrix {
  std::int64_t rows, columns;
};
Matrix matrix_of(const TensorView& view) {
  if (view.shape.rank() == 0) return {1, 1};
  const std::int64_t columns = view.shape[view.shape.rank() - 1];
  return {columns == 0 ? 0 : view.elements() / columns, columns};
}

void block_amax(std::string& out, const OperandNumerics& operand) {
  const Matrix matrix = matrix_of(operand.input);
  const std::int64_t height = operand.block_rows, width = operand.block_columns;
  const std::int64_t across = (matrix.columns + width - 1) / width,
                     down = (matrix.rows + height - 1) / height;
  std::vector<double> amax(across * down, 0);
  std::int64_t at = 0;
  for_each_real(operand.input, [&](double value) {
    double& block = amax[at / matrix.columns / height * across + at % matrix.columns / width];
    const double magnitude = std::abs(value);
    if (!(magnitude <= block)) block = magnitude;  // keeps a NaN
    ++at;
  });
  integer(out, "blocks_down", down);
  integer(out, "blocks_across", across);
  out += ", \"block_amax\": [";
  const char* separator = "";
  for (const double value : amax) {
    out += separator;
    separator = ", ";
    if (std::isfinite(value))
      fmt::format_to(std::back_inserter(out), "{}", static_cast<float>(value));
    else
      out += "null";
  }
  out += ']';
}

void choices(std::string& out, const TensorView& chosen) {
  std::int64_t counts[std::size(kChoices)] = {};
  for (const std::uint8_t choice : chosen.span<const std::uint8_t>())
    if (choice < std::size(kChoices)) ++counts[choice];
  out += ", \"choices\": {";
  for (std::size_t i = 0; i < std::size(kChoices); ++i)
    fmt::format_to(std::back_inserter(out), "{}\"{}\": {}", i == 0 ? "" : ", ", kChoices[i], counts[i]);
  out += '}';
}

}  // namespace

std::string operand_hash(const TensorView& input) {
  return xxh3_128_of(input.raw()).substr(0, 16);
}

void append_line(std::string& out, const OperandNumerics& operand, bool blocks) {
  const QuantizeStats& stats = operand.stats;
  const Matrix matrix = matrix_of(operand.input);
  fmt::format_to(std::back_inserter(out), "{}{}", kStep, operand.slot + 1);
  text(out, "layer", operand.layer);
  integer(out, "site", operand.site);
  text(out, "gemm", operand.gemm);
  text(out, "operand", operand.operand);
  integer(out, "first_row", operand.first_row);
  integer(out, "rows", matrix.rows);
  integer(out, "columns", matrix.columns);
  text(out, "dtype", dtype_name(operand.input.dtype));
  text(out, "format", operand.format);
  text(out, "reason", operand.reason);
  number(out, "amax", stats.amax);
  number(out, "underflow", stats.underflow);
  number(out, "saturated", stats.saturated);
  number(out, "sqnr_db", 10 * std::log10(stats.signal / stats.noise));
  number(out, "mean_relative_error", stats.relative_error);
  number(out, "scale_min", stats.scale_min);
  number(out, "scale_max", stats.scale_max);
  number(out, "scale_binades", std::log2(stats.scale_max / stats.scale_min));
  if (operand.block_rows > 0 && operand.block_columns > 0) {
    integer(out, "block_rows", operand.block_rows);
    integer(out, "block_columns", operand.block_columns);
    if (blocks) block_amax(out, operand);
  }
  if (!operand.choices.empty()) choices(out, operand.choices);
  text(out, "hash", operand_hash(operand.input));
  out += "}\n";
}

std::string keep_lines(std::string_view text, std::int64_t last_step, bool& whole) {
  std::string kept;
  whole = true;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::int64_t step = 0;
    if (end != std::string_view::npos && text.starts_with(kStep) && text[end - 1] == '}')
      std::from_chars(text.data() + kStep.size(), text.data() + end, step);
    if (step < 1) {
      whole = false;
      break;
    }
    if (step <= last_step) kept.append(text, 0, end + 1);
    text.remove_prefix(end + 1);
  }
  return kept;
}

namespace {

constexpr std::size_t kFull = std::size_t{1} << 20;
constexpr std::int64_t kLargestFile = std::int64_t{4} << 30;

std::vector<std::string> strings(std::span<const std::string_view> texts) {
  return {texts.begin(), texts.end()};
}

}  // namespace

Numerics::Numerics(const Options& options, Host& host)
    : Numerics(options.integer("every"), strings(options.texts("layers")), options.boolean("blocks"), host,
               make_posix_files()) {}

Numerics::Numerics(std::int64_t every, std::vector<std::string> layers, bool blocks, Host& host,
                   std::unique_ptr<FileSystem> files)
    : every_(every), layers_(std::move(layers)), blocks_(blocks), host_(host), files_(std::move(files)) {}

void* Numerics::query(std::string_view interface_id) {
  return interface_id == NumericsObserver::kId ? static_cast<NumericsObserver*>(this) : nullptr;
}

void Numerics::on_start(const RunInfo& info) {
  const std::string path = info.folder + "/numerics.jsonl";
  if (files_->exists(path)) {
    bool whole = true;
    const std::string kept = keep_lines(read_text(*files_, path, kLargestFile), info.first_slot, whole);
    if (!whole) host_.log(LogLevel::kWarning, path + ": a torn line and what follows it are dropped");
    files_->write_text_atomically(path, kept);
  }
  file_ = files_->append_to(path);
}

void Numerics::on_operand(const OperandNumerics& operand) {
  layer_.assign(operand.layer);
  const bool wanted = std::any_of(layers_.begin(), layers_.end(), [&](const std::string& pattern) {
    return matches_pattern(pattern, layer_);
  });
  if (!wanted) return;
  append_line(buffer_, operand, blocks_);
  if (buffer_.size() >= kFull) flush();
}

void Numerics::flush() {
  if (file_ == nullptr || buffer_.empty()) return;
  // Cleared first: after an error the number of bytes written is unknown, and a retry would corrupt the file.
  struct Clear {
    std::string& text;
    ~Clear() { text.clear(); }
  } clear{buffer_};
  file_->append(std::as_bytes(std::span(buffer_)));
}

}  // namespace tenon::numerics

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.numerics",
                               .version = "0.1.0",
                               .summary = "what number formats do to the operands of products"},
             tenon::numerics::Numerics)
