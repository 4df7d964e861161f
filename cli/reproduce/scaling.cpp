// The life of a study of scaling; see scaling.hpp.
#include "reproduce/scaling.hpp"

#include "ab/format.hpp"
#include "base/json_writer.hpp"
#include "reproduce/render.hpp"
#include "reproduce/study_file.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <stdexcept>

namespace tenon::reproduce {

// The table of the file.

namespace {

constexpr OptionSpec kScalingOptions[] = {
    option::integers("points", nullptr).mandatory().doc_text("numbers of trainers, ascending"),
    option::text("alone", "\"\"").doc_text("arm that runs at one trainer only, for all others"),
    option::texts("measured", "[]").doc_text("arms under the wall clock, in a table of their own"),
    option::integers("measured_points", "[1, 2]").doc_text("numbers of trainers of those"),
};

void check_points(const std::vector<std::int64_t>& points, const std::string& key, Problems& problems) {
  if (points.empty()) problems.say(key, "name at least one number of trainers, e.g. points = [1, 2, 5]");
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i] < 1)
      problems.say(key, fmt::format("{} is not a number of trainers; expected 1 or more", points[i]));
    if (i > 0 && points[i] <= points[i - 1])
      problems.say(key, fmt::format("{} follows {}; values must ascend", points[i], points[i - 1]));
  }
}

/// Whether another kind gives samples and points a meaning, and checks them.
bool have_another_meaning(const Problems& problems, const StudyKind& kind) {
  return std::any_of(problems.kinds().begin(), problems.kinds().end(),
                     [&](const auto& other) { return other.get() != &kind && other->has_points(); });
}

}  // namespace

bool Scaling::is_measured(const std::string& arm) const {
  return std::find(measured.begin(), measured.end(), arm) != measured.end();
}

std::vector<config::TableSpecs> Scaling::file_tables() const {
  return {{"scaling", kScalingOptions}};
}

void Scaling::read(const Value& table) {
  const Resolution found =
      resolve_options({.table = table, .owner = "scaling", .specs = option_list(kScalingOptions)});
  points = integers_of(*found.options, "points");
  measured_points = integers_of(*found.options, "measured_points");
  alone = std::string(found.options->text("alone"));
  measured = texts_of(*found.options, "measured");
}

void Scaling::check_without(const StudyFile& study, Problems& problems) const {
  if (have_another_meaning(problems, *this)) return;
  for (const Size& size : study.sizes) {
    if (size.samples == 0 && size.measured_samples == 0 && size.points.empty()) continue;
    const char* what = size.samples > 0            ? "samples"
                       : size.measured_samples > 0 ? "measured_samples"
                                                   : "points";
    problems.say(fmt::format("size.{}.{}", size.name, what),
                 "only a study with a table [scaling] has this; others say steps");
  }
}

void Scaling::check(const StudyFile& study, Problems& problems) const {
  for (const Size& size : study.sizes) {
    if (have_another_meaning(problems, *this)) break;
    const auto key = [&](const char* name) { return fmt::format("size.{}.{}", size.name, name); };
    if (size.steps != 0)
      problems.say(key("steps"),
                   "a study of scaling fixes samples: the steps of a point are samples / (trainers x batch)");
    if (size.samples < 1)
      problems.say(key("samples"), "how many samples does every run use? e.g. samples = 1000000");
    if (!measured.empty() && size.measured_samples < 1)
      problems.say(key("measured_samples"), "how many samples does a run under the wall clock use?");
    if (!size.points.empty()) check_points(size.points, key("points"), problems);
  }
  check_points(points, "scaling.points", problems);
  check_points(measured_points, "scaling.measured_points", problems);
  if (!alone.empty()) problems.arm_named("scaling.alone", alone);
  for (std::size_t i = 0; i < measured.size(); ++i)
    problems.arm_named(fmt::format("scaling.measured[{}]", i), measured[i]);
  for (std::size_t i = 0; i < study.arms.size(); ++i) {
    if (study.arms[i].steps_over > 1)
      problems.say(fmt::format("arm[{}].steps_over", i),
                   "a study of scaling counts samples, and has no steps to divide");
  }
  if (is_measured(alone))
    problems.say("scaling.alone",
                 "the run that speedups refer to cannot be under another clock than they are");
  problems.alone(*this);
}

// Runs.

namespace {

/// The value of one key in a configuration, or `absent`.
std::int64_t integer_at(const Config& config, const char* key, std::int64_t absent) {
  const Value* found = config.find(key);
  return found == nullptr || found->type() != Value::Type::kInteger ? absent : found->integer();
}

bool simulated(const Config& config) {
  const Value* found = config.find("transport.clock.type");
  return found != nullptr && found->is_text() && found->text() == "simulated";
}

std::vector<std::int64_t> points_of(const Scaling& scaling, const Size& size, const std::string& arm) {
  if (scaling.is_measured(arm)) return scaling.measured_points;
  if (arm == scaling.alone) return {1};
  std::vector<std::int64_t> out = size.points.empty() ? scaling.points : size.points;
  if (!scaling.alone.empty()) std::erase(out, 1);
  return out;
}

/// Steps of each trainer. A trainer's slots are divided among its workers, so their number does not matter.
std::int64_t steps_of(const Config& config, const std::string& arm, std::int64_t samples,
                      std::int64_t trainers) {
  const std::int64_t batch = integer_at(config, "data.batch", 0) * integer_at(config, "run.accumulate", 1);
  if (batch < 1) {
    fail_config(
        fmt::format("tenon reproduce: arm '{}' has no data.batch; a study of scaling needs it in the "
                    "configuration, to count steps by samples",
                    arm));
  }
  const std::int64_t slot = batch * trainers;
  if (samples % slot != 0) {
    fail_config(fmt::format(
        "tenon reproduce: arm '{}' at {} trainers: {} samples are not whole slots of {} x {} "
        "samples; the nearest that are: {}",
        arm, trainers, samples, trainers, batch, std::max(samples / slot, std::int64_t{1}) * slot));
  }
  return samples / slot;
}

void check_clock(const Config& config, const StudyArm& arm, bool measured) {
  if (simulated(config) != measured) return;
  fail_config(fmt::format(
      "tenon reproduce: arm '{}' runs under the {} clock, {}", arm.arm.name, measured ? "simulated" : "wall",
      measured ? "but stands in scaling.measured; set transport.clock.type=wall, or take it out"
               : "which belongs into another table; name the arm in scaling.measured, or set "
                 "transport.clock.type=simulated"));
}

}  // namespace

std::string point_name(const std::string& name, std::int64_t trainers) {
  return fmt::format("{}.{}", name, trainers);
}

std::size_t point_count(const StudyFile& study, const Size& size) {
  std::size_t count = 0;
  for (const StudyArm& arm : study.arms) count += points_of(study.as<Scaling>(), size, arm.arm.name).size();
  return count;
}

StudyFile at_points(const StudyFile& study, const Size& size) {
  const auto& scaling = study.as<Scaling>();
  StudyFile out = study;
  out.arms.clear();
  for (const StudyArm& arm : study.arms) {
    const bool measured = scaling.is_measured(arm.arm.name);
    std::vector<std::string> words = size.set;
    words.insert(words.end(), arm.arm.set.begin(), arm.arm.set.end());
    const Config config = Config::load(study.base, words, arm.arm.extends);
    check_clock(config, arm, measured);
    for (const std::int64_t trainers : points_of(scaling, size, arm.arm.name)) {
      StudyArm point = arm;
      point.of = arm.arm.name;
      point.trainers = trainers;
      point.arm.name = point_name(arm.arm.name, trainers);
      point.arm.set.push_back(fmt::format("parallel.ranks={}", trainers));
      point.added = 1;
      const std::int64_t samples = measured ? size.measured_samples : size.samples;
      point.arm.steps = steps_of(config, arm.arm.name, samples, trainers);
      point.baseline = point_name(arm.baseline, trainers);
      out.arms.push_back(std::move(point));
    }
  }
  // An arm whose baseline lacks this point, or uses another clock, is not compared.
  for (StudyArm& arm : out.arms) {
    const StudyArm* baseline = out.arm(arm.baseline);
    if (baseline == nullptr || scaling.is_measured(arm.of) != scaling.is_measured(baseline->of))
      arm.baseline = arm.arm.name;
  }
  return out;
}

StudyFile Scaling::as_runs(const StudyFile& given, const Size& size, const std::string&) const {
  return at_points(given, size);
}

bool Scaling::runs_alone(const StudyFile& study, const ab::Job& job) const {
  return is_measured(study.arms[job.arm].of);
}

// Numbers.

namespace {

/// A number of the resolved configuration, "inf" among them.
double configured(const ab::RunRecord& run, const char* key, double absent) {
  const auto found = run.config.find(key);
  if (found == run.config.end()) return absent;
  try {
    return std::stod(found->second);
  } catch (const std::logic_error&) {
    return absent;
  }
}

bool configured_as(const ab::RunRecord& run, const char* key, const char* text) {
  const auto found = run.config.find(key);
  return found != run.config.end() && found->second == "\"" + std::string(text) + "\"";
}

double syncs_of(const ab::RunRecord& run) {
  const auto found = run.distributions.find("sync_gap");
  return found == run.distributions.end() ? 0 : found->second.count;
}

/// Values of one quantity over the seeds.
class Mean {
 public:
  void add(std::optional<double> value) {
    if (!value || !std::isfinite(*value)) return;
    low_ = std::min(low_, *value);
    high_ = std::max(high_, *value);
    sum_ += *value;
    ++n_;
  }
  std::optional<double> mean() const {
    return n_ == 0 ? std::nullopt : std::optional(sum_ / static_cast<double>(n_));
  }
  std::optional<double> most() const { return n_ == 0 ? std::nullopt : std::optional(high_); }
  std::optional<MeanAndRange> spread() const {
    if (n_ == 0) return std::nullopt;
    return MeanAndRange{n_, sum_ / static_cast<double>(n_), low_, high_};
  }

 private:
  std::size_t n_ = 0;
  double sum_ = 0;
  double low_ = std::numeric_limits<double>::infinity(), high_ = -low_;
};

PointResult point_of(const StudyResult& r, std::size_t index) {
  const StudyArm& what = r.study.arms[index];
  PointResult out;
  out.index = index;
  out.arm = what.of;
  out.title = what.title;
  out.trainers = what.trainers;
  out.measured = r.study.as<Scaling>().is_measured(what.of);
  Mean rate, loss, gap, longest, predicted, elp, bytes, sync_bytes, waited, waited_share, server;
  for (const RunResult& each : r.arms[index].runs) {
    loss.add(each.value);
    if (!each.record || (each.status != "completed" && each.status != "diverged")) continue;
    const ab::RunRecord& run = *each.record;
    const ExchangeModel model = exchange_model(run);
    rate.add(examples_per_second(run));
    gap.add(average_sync_gap(run));
    predicted.add(predicted_gap(model));
    if (const auto found = run.distributions.find("sync_gap"); syncs_of(run) > 0)
      longest.add(found->second.most);
    elp.add(configured(run, "data.batch", 0) * configured(run, "parallel.workers", 1) * model.trainers);
    double sent = 0;
    for (const auto& entry : run.rank_bytes) sent += entry.second;
    bytes.add(sent);
    sync_bytes.add(ab::bytes_of(run.rank_bytes, "parameter"));
    if (run.exposed_comm_s && run.late_s) {
      waited.add(*run.exposed_comm_s + *run.late_s);
      waited_share.add(100 * (*run.exposed_comm_s + *run.late_s) / run.wall_s);
    }
    const double from_servers = ab::bytes_of(run.bytes_by_purpose, "servers.parameter");
    if (model.servers > 0 && from_servers > 0 && std::isfinite(model.bandwidth))
      server.add(100 * from_servers / (model.servers * model.bandwidth * run.wall_s));
  }
  out.examples_per_s = rate.mean();
  out.loss = loss.spread();
  out.sync_gap = gap.mean();
  out.longest_sync_gap = longest.most();
  out.predicted_gap = predicted.mean();
  out.elp = elp.mean();
  out.bytes = bytes.mean();
  out.sync_bytes = sync_bytes.mean();
  out.waited_s = waited.mean();
  out.waited_percent = waited_share.mean();
  out.server_percent = server.mean();
  return out;
}

void add_speedups(ScalingArm& arm) {
  const auto one = std::find_if(arm.points.begin(), arm.points.end(),
                                [](const PointResult& point) { return point.trainers == 1; });
  if (one == arm.points.end() || !one->examples_per_s) return;
  const double alone = *one->examples_per_s;
  for (PointResult& point : arm.points) {
    if (!point.examples_per_s) continue;
    point.speedup = *point.examples_per_s / alone;
    point.linear_percent = 100 * *point.speedup / static_cast<double>(point.trainers);
  }
}

/// Evaluated at the smallest number of trainers above one, whose pace servers do not limit yet.
std::optional<double> saturation_of(const StudyResult& r, const ScalingArm& arm) {
  for (const PointResult& point : arm.points) {
    if (point.trainers < 2 || point.measured) continue;
    for (const RunResult& run : r.arms[point.index].runs)
      if (run.record && run.status == "completed") return predicted_saturation(exchange_model(*run.record));
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> predicted_gap(const ExchangeModel& m) {
  if (m.foreground) return m.interval;
  if (!std::isfinite(m.bandwidth) || m.bandwidth <= 0 || m.bytes <= 0) return std::nullopt;
  const double one_way = m.bytes / m.bandwidth;
  if (m.servers > 0) {
    const double own = 2 * one_way + 3 * m.pieces * m.latency + m.rest;
    return m.slots_per_s * std::max(own, m.trainers * one_way / m.servers);
  }
  const double per_piece = 2 * (m.trainers - 1) * m.latency + m.poll / 2;
  return m.slots_per_s * (one_way + m.pieces * per_piece + m.rest);
}

std::optional<double> predicted_saturation(const ExchangeModel& m) {
  if (!m.foreground || m.servers < 1 || !std::isfinite(m.bandwidth) || m.bytes <= 0 || m.slots_per_s <= 0)
    return std::nullopt;
  return m.interval * m.servers * m.bandwidth / (m.bytes * m.slots_per_s);
}

std::optional<double> examples_per_second(const ab::RunRecord& run) {
  const auto found = run.series.find("train/loss");
  if (found == run.series.end() || found->second.size() < 2) return std::nullopt;
  const ab::MetricPoint &first = found->second.front(), &last = found->second.back();
  if (last.wall_s <= first.wall_s) return std::nullopt;
  return (last.samples - first.samples) / (last.wall_s - first.wall_s);
}

std::optional<double> average_sync_gap(const ab::RunRecord& run) {
  const double syncs = syncs_of(run);
  if (syncs < 1) return std::nullopt;
  return run.steps * configured(run, "parallel.ranks", 1) / syncs;
}

ExchangeModel exchange_model(const ab::RunRecord& run) {
  ExchangeModel out;
  out.foreground = configured_as(run, "sync.mode", "foreground");
  out.trainers = configured(run, "parallel.ranks", 1);
  out.servers = configured(run, "parallel.servers", 0);
  out.interval = configured(run, "sync.interval", 0);
  out.bandwidth = configured(run, "transport.link.bandwidth", std::numeric_limits<double>::infinity());
  out.latency = configured(run, "transport.link.latency", 0);
  out.rest = configured(run, "sync.rest", 0);
  out.poll = configured(run, "sync.poll", 0);
  const double syncs = syncs_of(run);
  if (syncs > 0) out.bytes = ab::bytes_of(run.rank_bytes, "parameter") * out.trainers / syncs;
  // A ring sends 2 (K-1) / K of the weights; servers receive them whole, at least one piece each.
  const double weights =
      out.servers > 0 || out.trainers < 2 ? out.bytes : out.bytes * out.trainers / (2 * (out.trainers - 1));
  const double piece = configured(run, "sync.piece", 0);
  out.pieces = std::max({piece > 0 ? std::ceil(weights / piece) : 1.0, out.servers, 1.0});
  const double slot = out.trainers * configured(run, "data.batch", 0) * configured(run, "run.accumulate", 1);
  if (const auto rate = examples_per_second(run); rate && slot > 0) out.slots_per_s = *rate / slot;
  return out;
}

std::vector<ScalingArm> scaling_arms(const StudyResult& r) {
  std::vector<ScalingArm> out;
  std::optional<PointResult> alone;
  for (std::size_t a = 0; a < r.study.arms.size(); ++a) {
    const StudyArm& what = r.study.arms[a];
    if (what.of == r.study.as<Scaling>().alone) {
      alone = point_of(r, a);
      continue;
    }
    if (out.empty() || out.back().name != what.of)
      out.push_back({what.of, what.title, r.study.as<Scaling>().is_measured(what.of), {}, {}});
    out.back().points.push_back(point_of(r, a));
  }
  for (ScalingArm& arm : out) {
    if (alone && !arm.measured) {
      arm.points.insert(arm.points.begin(), *alone);
      arm.points.front().shared = true;
    }
    add_speedups(arm);
    if (!arm.measured) arm.saturates_at = saturation_of(r, arm);
  }
  return out;
}

// Tables.

namespace {

using ab::fixed;

std::string number(const std::optional<double>& value, int decimals) {
  return value ? fixed(*value, decimals) : kNoValue;
}

std::string rounded(const std::optional<double>& value) {
  return value ? count(*value) : kNoValue;
}

std::string loss_text(const PointResult& point) {
  if (!point.loss) return kNoValue;
  const MeanAndRange& loss = *point.loss;
  if (loss.n < 2) return fixed(loss.mean, 5);
  return fmt::format("{} ({} to {})", fixed(loss.mean, 5), fixed(loss.low, 5), fixed(loss.high, 5));
}

std::string rate_text(const PointResult& point) {
  if (!point.examples_per_s) return kNoValue;
  return rounded(point.examples_per_s) + (point.linear_percent && point.trainers > 1
                                              ? fmt::format(" ({} %)", fixed(*point.linear_percent, 0))
                                              : "");
}

std::string gap_text(const PointResult& point) {
  if (!point.sync_gap) return kNoValue;
  std::string out = fixed(*point.sync_gap, 1);
  if (point.longest_sync_gap) out += fmt::format(", at most {}", fixed(*point.longest_sync_gap, 0));
  if (point.predicted_gap) out += fmt::format(" [{}]", fixed(*point.predicted_gap, 1));
  return out;
}

/// Arms of the file, also for a study whose arms are divided into points.
std::size_t arm_count(const StudyFile& study) {
  std::set<std::string> names;
  for (const StudyArm& arm : study.arms) names.insert(arm.of.empty() ? arm.arm.name : arm.of);
  return names.size();
}

using Cell = std::function<std::string(const PointResult&)>;

/// An arm per row, a number of trainers per column.
std::string pivot(const std::vector<ScalingArm>& arms, bool measured, const char* what, const Cell& cell,
                  const std::function<std::string(const ScalingArm&)>& last = {},
                  const char* last_name = "") {
  std::set<std::int64_t> trainers;
  for (const ScalingArm& arm : arms)
    for (const PointResult& point : arm.points)
      if (arm.measured == measured) trainers.insert(point.trainers);
  if (trainers.empty()) return "";
  std::vector<std::string> names{what};
  for (const std::int64_t k : trainers) names.push_back(fmt::format("{} trainer{}", k, k == 1 ? "" : "s"));
  if (last) names.push_back(last_name);
  std::string out = head(names);
  for (const ScalingArm& arm : arms) {
    if (arm.measured != measured) continue;
    std::vector<std::string> cells{arm.title};
    for (const std::int64_t k : trainers) {
      const auto found = std::find_if(arm.points.begin(), arm.points.end(),
                                      [k](const PointResult& point) { return point.trainers == k; });
      cells.push_back(found == arm.points.end() ? kNoValue : cell(*found));
    }
    if (last) cells.push_back(last(arm));
    out += row(cells);
  }
  return out;
}

std::string shared_text(const StudyResult& r) {
  const std::string& alone = r.study.as<Scaling>().alone;
  if (alone.empty()) return "";
  return fmt::format(
      " One trainer exchanges with nobody, so its column is one and the same run (`{}`) for all arms.",
      alone);
}

}  // namespace

std::string Scaling::tables(const StudyResult& r) const {
  const std::vector<ScalingArm> arms = scaling_arms(r);
  std::string out = "### Examples per second of the whole job, simulated\n\n";
  out += pivot(
      arms, false, "examples/s, simulated (share of linear)", rate_text,
      [](const ScalingArm& arm) { return number(arm.saturates_at, 1); }, "servers predicted full at");
  out +=
      "\nTime is the simulated clock's: computing and links cost what the configuration says, weights and "
      "losses are "
      "real. Share of linear = rate / (trainers x rate of one trainer)." +
      shared_text(r) +
      " Servers are predicted full at interval x servers x B / (S r) trainers, where S is what a trainer "
      "sends in an "
      "exchange, B a link's bytes/s in one direction, r a trainer's slots per second at its smallest point "
      "above one; foreground only.\n";
  out += fmt::format("\n### {} after the last sample\n\n", r.study.metric);
  out += pivot(arms, false, r.study.metric.c_str(), loss_text);
  out += fmt::format(
      "\nEvery run uses the same number of samples, each once; more trainers have fewer each. {}.\n",
      r.size.seeds.size() > 1 ? fmt::format("Mean of {} seeds (smallest to largest)", r.size.seeds.size())
                              : "One seed: differences in the last digits mean nothing");
  out += "\n### Sync gap\n\n";
  out += pivot(arms, false, "slots between two syncs of a trainer", gap_text);
  out +=
      "\nAverage = slots of all trainers / completed syncs of all trainers; then the longest; [in brackets] "
      "what r x "
      "seconds of an exchange predicts: with n servers and K trainers max(2 S / B + 3 P L + rest, K S / (n "
      "B)), "
      "without S / B + P (2 (K-1) L + poll / 2) + rest; P = pieces of an exchange, L = latency.\n";
  const std::string measured = pivot(arms, true, "examples/s, measured (share of linear)", rate_text);
  if (!measured.empty()) {
    out += "\n### Measured, with threads on this machine\n\n" + measured + "\n" +
           pivot(arms, true, r.study.metric.c_str(), loss_text) + "\n" +
           pivot(arms, true, "slots between two syncs of a trainer", gap_text);
    out +=
        "\nThe wall clock of the machine named below, which all trainers, their workers and servers share: "
        "these "
        "numbers say what the program does with real threads, and nothing about many machines.\n";
  }
  return out;
}

std::string Scaling::every_run(const StudyResult& r) const {
  std::string out = "\n## Every point\n\n" +
                    head({"arm", "trainers", "clock", "examples/s", "speedup", "of linear, %", r.study.metric,
                          "sync gap, mean", "longest", "predicted", "ELP", "sent per trainer, MB",
                          "of it weights, MB", "waited per trainer, s", "waited, %", "server links busy, %"});
  std::set<std::size_t> shown;
  for (const ScalingArm& arm : scaling_arms(r)) {
    for (const PointResult& p : arm.points) {
      if (!shown.insert(p.index).second) continue;
      const auto megabytes = [](const std::optional<double>& bytes) {
        return bytes ? fixed(*bytes / 1e6, 1) : std::string(kNoValue);
      };
      out += row({p.arm, std::to_string(p.trainers), p.measured ? "wall" : "simulated",
                  rounded(p.examples_per_s), number(p.speedup, 2), number(p.linear_percent, 1), loss_text(p),
                  number(p.sync_gap, 2), number(p.longest_sync_gap, 0), number(p.predicted_gap, 2),
                  rounded(p.elp), megabytes(p.bytes), megabytes(p.sync_bytes), number(p.waited_s, 1),
                  number(p.waited_percent, 1), number(p.server_percent, 1)});
    }
  }
  return out +
         "\nELP = batch x workers x trainers, the examples that are in flight at a time. Bytes are those "
         "that left "
         "a trainer, mean over them. Waited = the training thread's, for bytes and for others, "
         "evaluation included. Server links: weights sent to trainers, as a share of what the links carry.\n";
}

std::string Scaling::size_text(const StudyFile& study, const Size& size) const {
  const std::size_t seeds = size.seeds.size();
  return fmt::format("{} arms at up to {} numbers of trainers x {} seed{}, {} samples a run",
                     arm_count(study), (size.points.empty() ? points : size.points).size(), seeds,
                     seeds == 1 ? "" : "s", count(static_cast<double>(size.samples)));
}

std::string Scaling::lines(const StudyResult& r) const {
  std::string out;
  for (const ScalingArm& arm : scaling_arms(r)) {
    out += fmt::format("  {:<24}{} examples/s:", arm.name, arm.measured ? "measured" : "simulated");
    for (const PointResult& point : arm.points)
      out += fmt::format(" {} at {};", rounded(point.examples_per_s), point.trainers);
    out += "\n";
  }
  return out;
}

void Scaling::size_json(JsonWriter& json, const StudyFile& study, const Size& size) const {
  json.member("runs", static_cast<std::int64_t>(point_count(study, size) * size.seeds.size()));
  json.member("samples", size.samples);
}

void Scaling::json(JsonWriter& json, const StudyResult& r) const {
  const auto number = [&](const char* key, const std::optional<double>& value) {
    json.member(key, value.value_or(JsonWriter::kNull));
  };
  json.objects("scaling", scaling_arms(r), [&](const ScalingArm& arm) {
    json.member("arm", arm.name);
    json.member("title", arm.title);
    json.member("clock", arm.measured ? "wall" : "simulated");
    number("predicted_saturation_trainers", arm.saturates_at);
    json.objects("points", arm.points, [&](const PointResult& p) {
      json.member("trainers", p.trainers);
      json.member("run_of", p.arm);
      number("examples_per_s", p.examples_per_s);
      number("speedup", p.speedup);
      number("linear_percent", p.linear_percent);
      json.begin_object("loss");
      json.member("seeds", static_cast<std::int64_t>(p.loss ? p.loss->n : 0));
      json.member("mean", p.loss ? p.loss->mean : JsonWriter::kNull);
      json.member("low", p.loss ? p.loss->low : JsonWriter::kNull);
      json.member("high", p.loss ? p.loss->high : JsonWriter::kNull);
      json.end_object();
      number("sync_gap", p.sync_gap);
      number("longest_sync_gap", p.longest_sync_gap);
      number("predicted_sync_gap", p.predicted_gap);
      number("elp", p.elp);
      number("bytes_per_trainer", p.bytes);
      number("sync_bytes_per_trainer", p.sync_bytes);
      number("waited_s", p.waited_s);
      number("waited_percent", p.waited_percent);
      number("server_links_percent", p.server_percent);
    });
  });
  paper_values_json(json, r);
}

// The figure: three panels over the number of trainers.

namespace {

using Quantity = std::function<std::optional<double>(const PointResult&)>;

LinePanel panel_of(const std::vector<ScalingArm>& arms, const std::string& title, const Quantity& quantity,
                   bool from_zero, const std::optional<double>& slope) {
  LinePanel out{title, {}, from_zero, slope};
  for (const ScalingArm& arm : arms) {
    std::vector<ab::Point>& line = out.lines.emplace_back();
    for (const PointResult& point : arm.points)
      if (const auto value = quantity(point)) line.push_back({static_cast<double>(point.trainers), *value});
  }
  return out;
}

}  // namespace

std::string Scaling::figure(const StudyResult& r) const {
  std::vector<ScalingArm> arms = scaling_arms(r);
  std::erase_if(arms, [](const ScalingArm& arm) { return arm.measured; });
  LineFigure figure{
      "trainers",
      {},
      fmt::format("{} samples a run, {} seed{}, simulated clock", count(static_cast<double>(r.size.samples)),
                  r.size.seeds.size(), r.size.seeds.size() == 1 ? "" : "s"),
      {}};
  std::optional<double> slope;  // thousand examples per second of one trainer
  for (const ScalingArm& arm : arms) {
    figure.names.push_back(arm.title);
    for (const PointResult& point : arm.points)
      if (!slope && point.trainers == 1 && point.examples_per_s) slope = *point.examples_per_s / 1000;
  }
  figure.panels = {
      panel_of(
          arms, "thousand examples/s, simulated",
          [](const PointResult& p) -> std::optional<double> {
            return p.examples_per_s ? std::optional(*p.examples_per_s / 1000) : std::nullopt;
          },
          true, slope),
      panel_of(
          arms, r.study.metric,
          [](const PointResult& p) { return p.loss ? std::optional(p.loss->mean) : std::nullopt; }, false,
          std::nullopt),
      panel_of(
          arms, "slots between two syncs, mean", [](const PointResult& p) { return p.sync_gap; }, true,
          std::nullopt)};
  return line_figure(r, figure);
}

std::shared_ptr<StudyKind> make_scaling_kind() {
  return std::make_shared<Scaling>();
}

}  // namespace tenon::reproduce
