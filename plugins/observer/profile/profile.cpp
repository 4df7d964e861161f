// Life cycle of the account within a run.
#include "profile.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace tenon::profile {

// Spans are held until the end of their slot, because only then is it known whether the slot counts.

namespace {

constexpr std::string_view kBackward = " backward";

}  // namespace

void Account::add(const Span& span) {
  waiting_.push_back(span);
}

void Account::end_slot(double seconds) {
  for (const Span& span : waiting_) {
    const double s = span.end_s - span.begin_s;
    if (span.track == "layer") {
      const bool backward = span.name.ends_with(kBackward);
      LayerTime& time =
          layer(backward ? span.name.substr(0, span.name.size() - kBackward.size()) : span.name);
      (backward ? time.backward_s : time.forward_s) += s;
      (backward ? sums_.backward_s : sums_.forward_s) += s;
      time.flops += span.flops;
      time.bytes += span.bytes;
    } else if (span.track == "compute" && span.name == "optimizer") {
      sums_.optimizer_s += s;
    } else if (span.track == "declared") {
      sums_.declared_s += s;
    } else if (span.track == "data") {
      sums_.data_s += s;
    } else if (span.track == "communication") {
      sums_.communication_s += s;
    } else if (span.track == "wait") {
      sums_.late_s += s;
    } else if (span.track == "evaluate") {
      sums_.evaluate_s += s;
    } else if (span.track == "save" && span.name == "copy") {
      sums_.save_s += s;
    }
  }
  waiting_.clear();
  sums_.slots_s += seconds;
  ++slots_;
}

void Account::drop_slot() {
  waiting_.clear();
}

PhaseTimes Account::phases() const {
  PhaseTimes phases = sums_;
  phases.outside_s =
      std::max(0.0, sums_.slots_s - sums_.forward_s - sums_.backward_s - sums_.optimizer_s - sums_.data_s -
                        sums_.communication_s - sums_.late_s - sums_.declared_s);
  return phases;
}

LayerTime& Account::layer(std::string_view name) {
  const auto found = std::find_if(layers_.begin(), layers_.end(),
                                  [name](const LayerTime& time) { return time.name == name; });
  if (found != layers_.end()) return *found;
  return layers_.emplace_back(LayerTime{name, 0, 0, 0, 0});
}

// Columns are fixed, so that two profiles can be compared side by side.

namespace {

[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...) {
  std::array<char, 512> line{};
  va_list values;
  va_start(values, pattern);
  std::vsnprintf(line.data(), line.size(), pattern, values);
  va_end(values);
  return line.data();
}

struct Row {
  const char* name;
  double seconds;
};

std::array<Row, 8> rows_of(const PhaseTimes& p) {
  return {{{"layers, forward", p.forward_s},
           {"layers, backward", p.backward_s},
           {"optimizer", p.optimizer_s},
           {"data", p.data_s},
           {"communication", p.communication_s},
           {"waiting for other ranks", p.late_s},
           {"declared compute", p.declared_s},
           {"outside of these", p.outside_s}}};
}

/// Returns a rate in 1e9 per second; "-" if nothing was counted.
std::string rate(double amount, double seconds) {
  return amount > 0 && seconds > 0 ? format("%.1f", amount / seconds / 1e9) : "-";
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

std::string table(const Account& account, std::size_t rows) {
  if (account.slots() == 0) return "";
  const PhaseTimes phases = account.phases();
  const auto slots = static_cast<double>(account.slots());
  const double whole = std::max(phases.slots_s, 1e-12);
  std::string out =
      format("%lld slots of %.3f ms\n\n%-40s %10s %7s\n", static_cast<long long>(account.slots()),
             1e3 * phases.slots_s / slots, "phase", "ms/slot", "share");
  for (const Row& row : rows_of(phases)) {
    if (row.seconds > 0)
      out +=
          format("%-40s %10.3f %5.1f %%\n", row.name, 1e3 * row.seconds / slots, 100 * row.seconds / whole);
  }
  std::vector<const LayerTime*> order;
  for (const LayerTime& layer : account.layers()) order.push_back(&layer);
  std::stable_sort(order.begin(), order.end(),
                   [](const LayerTime* a, const LayerTime* b) { return a->seconds() > b->seconds(); });
  out += format("\n%-40s %10s %10s %7s %9s %8s\n", "layer", "forward ms", "backward", "share", "GFLOP/s",
                "GB/s");
  const std::size_t shown = std::min(rows, order.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const LayerTime& l = *order[i];
    out += format("%-40.*s %10.3f %10.3f %5.1f %% %9s %8s\n", static_cast<int>(l.name.size()), l.name.data(),
                  1e3 * l.forward_s / slots, 1e3 * l.backward_s / slots, 100 * l.seconds() / whole,
                  rate(l.flops, l.seconds()).c_str(), rate(l.bytes, l.seconds()).c_str());
  }
  if (shown < order.size()) out += format("... and %zu more in profile.json\n", order.size() - shown);
  return out;
}

std::string json(const Account& account) {
  const PhaseTimes phases = account.phases();
  const auto slots = static_cast<double>(std::max<std::int64_t>(1, account.slots()));
  std::string out = format("{\n  \"slots\": %lld,\n  \"seconds_per_slot\": %.9g,\n  \"phases\": {",
                           static_cast<long long>(account.slots()), phases.slots_s / slots);
  const char* comma = "\n";
  const auto phase = [&](const char* name, double seconds) {
    out += format("%s    \"%s\": %.9g", comma, name, seconds / slots);
    comma = ",\n";
  };
  phase("forward", phases.forward_s);
  phase("backward", phases.backward_s);
  phase("optimizer", phases.optimizer_s);
  phase("data", phases.data_s);
  phase("communication", phases.communication_s);
  phase("late", phases.late_s);
  phase("declared", phases.declared_s);
  phase("outside", phases.outside_s);
  phase("evaluate", phases.evaluate_s);
  phase("save", phases.save_s);
  out += format("\n  },\n  \"outside_share\": %.9g,\n  \"layers\": [",
                phases.slots_s > 0 ? phases.outside_s / phases.slots_s : 0.0);
  comma = "\n";
  for (const LayerTime& l : account.layers()) {
    out += comma;
    out += "    {\"name\": " + quoted(l.name) +
           format(", \"forward_s\": %.9g, \"backward_s\": %.9g, \"flops\": %.9g, \"bytes\": %.9g}",
                  l.forward_s / slots, l.backward_s / slots, l.flops / slots, l.bytes / slots);
    comma = ",\n";
  }
  return out + "\n  ]\n}\n";
}

Profile::Profile(const Options& options)
    : Profile(options.integer("skip"), static_cast<std::size_t>(options.integer("rows")),
              options.boolean("print"), make_posix_files()) {}

Profile::Profile(std::int64_t skip, std::size_t rows, bool print, std::unique_ptr<FileSystem> files)
    : skip_(skip), rows_(rows), print_(print), files_(std::move(files)) {}

void Profile::on_start(const RunInfo& info) {
  folder_ = info.folder;
  print_ = print_ && !info.quiet;
}

void Profile::on_slot(const SlotRecord& record) {
  if (seen_++ < skip_) {
    account_.drop_slot();
  } else {
    account_.end_slot(record.seconds);
  }
}

void Profile::on_finish(std::string_view, std::string_view) {
  if (folder_.empty() || account_.slots() == 0) return;
  const std::string text = table(account_, rows_);
  files_->write_text_atomically(folder_ + "/profile.json", json(account_));
  files_->write_text_atomically(folder_ + "/profile.txt", text);
  if (print_) std::fprintf(stderr, "\n%s\n", text.c_str());
}

}  // namespace tenon::profile

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.profile",
                               .version = "0.1.0",
                               .summary = "where the time of a slot goes"},
             tenon::profile::Profile)
