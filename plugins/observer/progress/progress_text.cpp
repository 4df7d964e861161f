// Formatting of progress lines into a fixed buffer.
#include "progress_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tenon::progress {
namespace {

/// Appends to a buffer and drops the excess.
class Text {
 public:
  explicit Text(LineBuffer& buffer, std::size_t limit)
      : begin_(buffer.data()), limit_(std::min(limit, kLineCapacity)) {}

  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    const std::size_t room = limit_ - size_;
    const auto written =
        fmt::format_to_n(begin_ + size_, room, format, std::forward<Arguments>(arguments)...);
    size_ += std::min(written.size, room);
  }
  /// Ends a line even if it was truncated.
  std::string_view line() {
    size_ = std::min(size_, limit_ - 1);
    begin_[size_++] = '\n';
    return view();
  }
  std::string_view view() const { return {begin_, size_}; }
  std::size_t size() const { return size_; }

 private:
  char* begin_;
  std::size_t limit_;
  std::size_t size_ = 0;
};

void add_duration(Text& text, double seconds) {
  if (!std::isfinite(seconds) || seconds > 8.64e8) {
    text.add("-:--");
    return;
  }
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(seconds, 0.0)));
  const std::int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  if (hours > 0) {
    text.add("{}:{:02}:{:02}", hours, minutes, whole % 60);
  } else {
    text.add("{}:{:02}", minutes, whole % 60);
  }
}

void add_rate(Text& text, double rate, std::string_view unit) {
  constexpr std::pair<double, const char*> kScales[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [scale, letter] : kScales) {
    if (rate >= scale) {
      text.add("{:.3g}{} {}/s", rate / scale, letter, unit);
      return;
    }
  }
  text.add("{:.3g} {}/s", rate, unit);
}

void add_facts(Text& text, const Snapshot& now, bool with_eta) {
  if (!std::isnan(now.loss) || now.done > 0) text.add(" | loss {:.4g}", now.loss);
  for (int i = 0; i < now.validations; ++i) {
    const NamedValue& metric = now.validation[static_cast<std::size_t>(i)];
    text.add(" | val {} {:.4g}", metric.name.view(), metric.value);
  }
  if (with_eta && !std::isnan(now.lr)) text.add(" | lr {:.2e}", now.lr);
  if (!std::isnan(now.rate)) {
    text.add(" | ");
    add_rate(text, now.rate, now.unit);
  }
  if (with_eta) {
    text.add(" | ETA ");
    add_duration(text, now.seconds_left);
  }
}

double share_done(const Snapshot& now) {
  return now.steps > 0 ? std::clamp(static_cast<double>(now.done) / static_cast<double>(now.steps), 0.0, 1.0)
                       : 1.0;
}

}  // namespace

std::string_view bar_line(LineBuffer& buffer, const Snapshot& now, int width) {
  constexpr int kLongestBar = 30, kShortestBar = 8;
  const auto columns = static_cast<std::size_t>(std::max(width - 1, 1));  // a full last column would wrap
  LineBuffer facts_buffer;
  Text facts(facts_buffer, kLineCapacity);
  facts.add("{}/{}", now.done, now.steps);
  add_facts(facts, now, true);
  Text text(buffer, columns);
  if (!now.run.empty()) text.add("{} ", now.run.substr(0, 24));
  const int room = static_cast<int>(columns) - static_cast<int>(text.size() + facts.size()) - 3;
  if (room >= kShortestBar) {
    const int length = std::min(room, kLongestBar);
    const int filled = static_cast<int>(share_done(now) * length);
    const bool head = filled < length;
    text.add("[{:=<{}}{}{: <{}}] ", "", filled, head ? ">" : "", "", length - filled - (head ? 1 : 0));
  }
  text.add("{}", facts.view());
  return text.view();
}

std::string_view plain_line(LineBuffer& buffer, const Snapshot& now) {
  Text text(buffer, kLineCapacity);
  text.add("step {}/{} ({:.1f} %)", now.done, now.steps, 100 * share_done(now));
  add_facts(text, now, true);
  return text.line();
}

std::string_view final_line(LineBuffer& buffer, const Snapshot& now, std::string_view status,
                            std::string_view message, double seconds) {
  Text text(buffer, kLineCapacity);
  text.add("{}: {}/{} steps in ", status, now.done, now.steps);
  add_duration(text, seconds);
  add_facts(text, now, false);
  if (!message.empty()) text.add(" | {}", message);
  return text.line();
}

}  // namespace tenon::progress
