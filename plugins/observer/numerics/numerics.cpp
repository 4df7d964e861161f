// The lines of a slot are written to the file at once at its end, so that a run that dies leaves whole lines.
#include "numerics.hpp"

#include "line.hpp"

#include <tenon/options.hpp>

#include <algorithm>

namespace tenon::numerics {
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
    write_text_atomically(*files_, path, kept);
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
