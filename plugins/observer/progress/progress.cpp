// Event handlers of progress.hpp.
#include "progress.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

namespace tenon::progress {
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
