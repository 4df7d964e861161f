// Rates, texts and event handlers of the progress line.
#include "progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

namespace tenon::progress {

// Exponential means of rates; old samples decay with a time constant of five seconds.

namespace {

constexpr double kFade_s = 5.0;
constexpr double kShortest_s = 0.05;

void blend(double& rate, double latest, double share) {
  rate = std::isnan(rate) ? latest : rate + share * (latest - rate);
}

}  // namespace

void Meter::start(double now, std::int64_t slots, std::int64_t units) {
  started_ = true;
  at_ = now;
  slots_ = slots;
  units_ = units;
}

void Meter::look(double now, std::int64_t slots, std::int64_t units) {
  const double passed = now - at_;
  if (passed < kShortest_s) return;
  const double share = 1 - std::exp(-passed / kFade_s);
  blend(slots_rate_, static_cast<double>(slots - slots_) / passed, share);
  blend(units_rate_, static_cast<double>(units - units_) / passed, share);
  start(now, slots, units);
}

// Formatting of progress lines into a fixed buffer.

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
    const NamedValue& metric = now.validation[i];
    text.add(" | val {} {:.4g}", metric.name.view(), metric.value);
  }
  for (int i = 0; i < now.named_evaluations; ++i) {
    const NamedValue& loss = now.named[i];
    text.add(" | {} loss {:.4g}", loss.name.view(), loss.value);
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
  const std::size_t columns = std::max(width - 1, 1);  // a full last column would wrap
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

namespace {

constexpr double kRedraw_s = 0.1;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kEraseToEnd = "\x1b[K";

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Progress::Progress(const Options& options)
    : Progress(options.real("every_s"), standard_error(), &steady_seconds) {}

Progress::Progress(double every_s, std::unique_ptr<LineOutput> output, Now now)
    : every_s_(every_s), output_(std::move(output)), now_(std::move(now)) {}

void Progress::on_start(const RunInfo& info) {
  quiet_ = info.quiet;
  terminal_ = info.terminal;
  run_ = info.name;
  snapshot_ = {};
  snapshot_.done = info.first_slot;
  snapshot_.steps = info.steps;
  snapshot_.loss = snapshot_.lr = snapshot_.rate = snapshot_.seconds_left = kUnknown;
  snapshot_.unit = "samples";
  meter_ = {};
  evaluated_ = false;
  started_at_ = shown_at_ = now_();
  // A resumed run has processed samples that this observer did not see.
  if (info.first_slot == 0) meter_.start(started_at_, 0, 0);
}

void Progress::on_slot(const SlotRecord& record) {
  if (quiet_) return;
  show_evaluation();
  const double now = now_();
  const bool tokens = record.tokens > record.samples;
  const std::int64_t units = tokens ? record.tokens : record.samples;
  snapshot_.done = record.slot + 1;
  snapshot_.loss = record.loss;
  snapshot_.lr = record.lr;
  snapshot_.unit = tokens ? "tok" : "samples";
  if (!meter_.started()) meter_.start(now, snapshot_.done, units);
  const bool last = snapshot_.done >= snapshot_.steps;
  if (now - shown_at_ < (terminal_ ? kRedraw_s : every_s_) && !(terminal_ && last)) return;
  meter_.look(now, snapshot_.done, units);
  show(now);
}

void Progress::on_metric(const Metric& metric) {
  if (quiet_ || metric.split != Split::kVal) return;
  if (!metric.set.empty()) {
    on_named(metric);
    return;
  }
  // The same in another unit.
  if (metric.name == "loss_per_byte") return;
  // The loss stays first, whichever metric arrives first.
  const bool loss = metric.name == "loss";
  auto* begin = snapshot_.validation.data();
  auto* end = begin + snapshot_.validations;
  NamedValue* place =
      std::find_if(begin, end, [&](const NamedValue& known) { return known.name.view() == metric.name; });
  if (place == end) {
    if (snapshot_.validations < static_cast<int>(snapshot_.validation.size())) {
      ++snapshot_.validations;
    } else if (!loss) {
      return;
    }
    if (loss) snapshot_.validation[1] = snapshot_.validation[0];
    place = loss ? begin : begin + snapshot_.validations - 1;
    place->name.assign(metric.name);
  }
  place->value = metric.value;
  snapshot_.done = std::max(snapshot_.done, metric.step);
  evaluated_ = true;
}

/// The loss of a named evaluation, where there is room for one more.
void Progress::on_named(const Metric& metric) {
  if (metric.name != "loss") return;
  decltype(NamedValue::name) name;
  name.assign(metric.set);
  auto* begin = snapshot_.named.data();
  auto* end = begin + snapshot_.named_evaluations;
  NamedValue* place =
      std::find_if(begin, end, [&](const NamedValue& known) { return known.name.view() == name.view(); });
  if (place == end) {
    if (snapshot_.named_evaluations == static_cast<int>(snapshot_.named.size())) return;
    ++snapshot_.named_evaluations;
    place->name = name;
  }
  place->value = metric.value;
  snapshot_.done = std::max(snapshot_.done, metric.step);
  evaluated_ = true;
}

/// Several metrics of one evaluation share a line, so it is shown at the next event.
void Progress::show_evaluation() {
  if (evaluated_ && !terminal_) show(now_());
  evaluated_ = false;
}

void Progress::show(double now) {
  shown_at_ = now;
  snapshot_.run = run_;
  snapshot_.rate = meter_.units_per_second();
  snapshot_.seconds_left = meter_.seconds_for(snapshot_.steps - snapshot_.done);
  if (!terminal_) {
    output_->write(plain_line(buffer_, snapshot_));
    return;
  }
  // A redraw is one write: carriage return, line, erasure of the rest of a longer line.
  std::array<char, kLineCapacity + 8> redraw;
  const std::string_view line = bar_line(buffer_, snapshot_, output_->width());
  redraw[0] = '\r';
  char* end = std::copy(line.begin(), line.end(), redraw.data() + 1);
  end = std::copy(kEraseToEnd.begin(), kEraseToEnd.end(), end);
  output_->write({redraw.data(), static_cast<std::size_t>(end - redraw.data())});
}

void Progress::on_finish(std::string_view status, std::string_view message) {
  if (quiet_) return;
  const double now = now_();
  if (terminal_) {
    output_->write("\r");
    output_->write(kEraseToEnd);
  }
  snapshot_.rate = meter_.units_per_second();
  output_->write(final_line(buffer_, snapshot_, status, message, now - started_at_));
}

}  // namespace tenon::progress
