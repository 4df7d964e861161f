// Uses one buffer; zlib reads plain files straight into it. An overlong line is dropped piece by piece.
#include "criteo_reader.hpp"

#include <tenon/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <system_error>

namespace tenon::ctr {

void FaultCounts::add(RowFault fault, std::int64_t line) {
  const auto kind = static_cast<std::size_t>(fault);
  if (counts[kind] < static_cast<std::int64_t>(kShown))
    lines[kind][static_cast<std::size_t>(counts[kind])] = line;
  ++counts[kind];
}

std::int64_t FaultCounts::total() const {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::string FaultCounts::text() const {
  std::vector<std::string> texts;
  for (std::size_t kind = 0; kind < kRowFaults; ++kind) {
    if (counts[kind] == 0) continue;
    std::vector<std::int64_t> places;
    for (const std::int64_t line : lines[kind]) {
      if (line > 0) places.push_back(line);
    }
    const bool more = counts[kind] > static_cast<std::int64_t>(kShown);
    texts.push_back(fmt::format("{} {} (line{} {}{})", counts[kind], fault_name(static_cast<RowFault>(kind)),
                                counts[kind] > 1 ? "s" : "", fmt::join(places, ", "), more ? ", ..." : ""));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

void CriteoReader::Close::operator()(gzFile_s* file) const {
  ::gzclose(file);
}

CriteoReader::CriteoReader(const std::string& path, std::size_t buffer) : path_(path), buffer_(buffer + 1) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail("cannot open it: " + std::generic_category().message(errno));
  struct stat status {};
  const bool is_folder = ::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode);
  if (!is_folder) file_.reset(::gzdopen(descriptor, "rb"));
  if (file_ == nullptr) {
    ::close(descriptor);
    fail(is_folder ? "expected a file of tab-separated rows, found a folder"
                   : "cannot read it: out of memory");
  }
  ::gzbuffer(file_.get(), 1 << 18);
}

CriteoReader::~CriteoReader() = default;

void CriteoReader::fail(const std::string& text) const {
  fail_config(fmt::format("data file '{}': {}", path_, text));
}

void CriteoReader::fill() {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const int got =
      ::gzread(file_.get(), buffer_.data() + end_, static_cast<unsigned>(buffer_.size() - 1 - end_));
  int code = Z_OK;
  ::gzerror(file_.get(), &code);
  if (code == Z_ERRNO) fail("cannot read on: " + std::generic_category().message(errno));
  if (code == Z_MEM_ERROR) fail("cannot read on: out of memory");
  if (got > 0) end_ += static_cast<std::size_t>(got);
  cut_ = got < 0 || (code != Z_OK && code != Z_STREAM_END);
  at_end_ = cut_ || got <= 0;
}

/// Returns the end of the line that begins at begin_, on a newline; null after the last line.
const char* CriteoReader::line_end() {
  for (std::size_t looked = 0;;) {
    char* const from = buffer_.data() + begin_ + looked;
    if (const void* found = std::memchr(from, '\n', end_ - begin_ - looked))
      return static_cast<const char*>(found);
    looked = end_ - begin_;
    if (at_end_) break;
    if (looked > kLongestLine) {
      if (!skipping_) faults_.add(RowFault::kTooLong, lines_ + 1);
      skipping_ = true;
      begin_ = end_;
      looked = 0;
    }
    fill();
  }
  if (cut_) {
    // The bytes before the break may be part of a row, or a row whose last field is truncated.
    if (skipping_) ++lines_;  // a separate line, already counted as too long
    faults_.add(RowFault::kCut, ++lines_);
    begin_ = end_;
    cut_ = skipping_ = false;
  }
  if (begin_ == end_ && !skipping_) return nullptr;
  buffer_[end_] = '\n';
  return buffer_.data() + end_;
}

std::size_t CriteoReader::read(std::span<CriteoRow> out) {
  std::size_t rows = 0;
  while (rows < out.size()) {
    const char* const end = line_end();
    if (end == nullptr) break;
    const char* begin = buffer_.data() + begin_;
    begin_ = std::min(static_cast<std::size_t>(end - buffer_.data()) + 1, end_);
    ++lines_;
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (lines_ == 1 &&
        std::string_view(begin, static_cast<std::size_t>(end - begin)).starts_with(kByteOrderMark))
      begin += kByteOrderMark.size();
    if (begin == end && !skipping_) {
      ++empty_;
      continue;
    }
    for (; empty_ > 0; --empty_) faults_.add(RowFault::kFieldCount, lines_ - empty_);
    if (skipping_) {
      skipping_ = false;
    } else if (parse_criteo_row(begin, end, out[rows])) {
      ++rows;
    } else {
      faults_.add(diagnose_criteo_row({begin, static_cast<std::size_t>(end - begin)}), lines_);
    }
  }
  return rows;
}

}  // namespace tenon::ctr
