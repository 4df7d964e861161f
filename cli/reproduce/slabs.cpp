// The life of a study of slabs; see slabs.hpp.
#include "reproduce/slabs.hpp"

#include "ab/format.hpp"
#include "base/at.hpp"
#include "base/json_writer.hpp"

#include <tenon/error.hpp>
#include <tenon/random.hpp>
#include <tenon/sdk/npy.hpp>
#include <tenon/tensor.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

namespace tenon::reproduce {

// Closed forms. Names of exchanges are those of the layers: spectral_conv moves, channel_linear sums
// gradients of weights that all ranks hold, relative_l2 sums the loss, the core the norm of gradients.

namespace {

constexpr std::int64_t kReal = 4, kComplex = 8, kDouble = 8;  // bytes
constexpr std::int64_t kSampleSums = 4;                       // of relative_l2, per sample

std::int64_t length_of(const std::vector<std::int64_t>& offsets, std::int64_t rank) {
  const std::size_t r = rank;
  return offsets[r + 1] - offsets[r];
}

/// Batch, channels and modes of the dimensions that no move touches.
std::int64_t untouched(const SlabOperator& op) {
  std::int64_t elements = op.batch * op.width;
  for (int dim = 0; dim < static_cast<int>(op.points.size()); ++dim)
    if (dim != op.sharded_dim && dim != op.other()) elements *= op.kept(dim);
  return elements;
}

struct Shares {
  std::int64_t points = 0, modes = 0;             ///< of the whole
  std::vector<std::int64_t> at_points, at_modes;  ///< offsets

  Shares(const SlabOperator& op, std::int64_t ranks)
      : points(base::at(op.points, op.sharded_dim)),
        modes(op.kept(op.other())),
        at_points(balanced_offsets(points, static_cast<int>(ranks))),
        at_modes(balanced_offsets(modes, static_cast<int>(ranks))) {}
  std::int64_t stays(std::int64_t rank) const {
    return length_of(at_points, rank) * length_of(at_modes, rank);
  }
  /// From sharded points to sharded modes; the reverse move receives what this one sends.
  std::int64_t sends(std::int64_t rank) const { return modes * length_of(at_points, rank) - stays(rank); }
  std::int64_t receives(std::int64_t rank) const { return points * length_of(at_modes, rank) - stays(rank); }
};

void add_moves(std::vector<Exchange>& list, const SlabOperator& op, std::int64_t ranks) {
  const Shares shares(op, ranks);
  const std::int64_t bytes = untouched(op) * kComplex;
  std::int64_t most = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    most = std::max({most, shares.sends(rank), shares.receives(rank)});
  for (const bool to_modes : {true, false}) {
    const std::int64_t first = to_modes ? shares.sends(0) : shares.receives(0);
    // A layer's x moves forward and its y back; their gradients the other way round.
    list.push_back({"moves", 2 * op.layers, bytes * first, static_cast<double>(bytes * most), 1, ranks - 1});
  }
}

/// A sum of `elements` on all ranks: pieces are summed, then sent to all ranks.
void add_sum(std::vector<Exchange>& list, const char* what, std::int64_t count, std::int64_t elements,
             std::int64_t item, std::int64_t ranks) {
  const std::int64_t piece = (elements + ranks - 1) / ranks;  // of rank 0, which has a largest one
  const std::int64_t least = elements / ranks;
  const std::int64_t summed = elements - piece, handed = piece * (ranks - 1);
  list.push_back({what, count, item * summed, static_cast<double>(item * std::max(elements - least, handed)),
                  1, std::min(elements, ranks - 1)});
  list.push_back({what, count, item * handed, static_cast<double>(item * std::max(elements - least, handed)),
                  1, ranks - 1});
}

}  // namespace

std::int64_t SlabOperator::kept(int dim) const {
  const std::int64_t k = base::at(modes, dim);
  return dim + 1 == static_cast<int>(points.size()) ? k : 2 * k;
}

std::int64_t SlabOperator::useful_ranks() const {
  return std::min(base::at(points, sharded_dim), kept(other()));
}

std::int64_t move_elements(const SlabOperator& op, std::int64_t ranks) {
  const Shares shares(op, ranks);
  std::int64_t stays = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) stays += shares.stays(rank);
  return untouched(op) * (shares.modes * shares.points - stays);
}

std::vector<Exchange> exchanges(const SlabOperator& op, std::int64_t ranks) {
  std::vector<Exchange> list;
  if (ranks < 2) return list;
  add_moves(list, op, ranks);
  const std::int64_t lifted = op.inputs + static_cast<std::int64_t>(op.points.size());
  const std::int64_t linear[][3] = {{1, lifted, op.width},
                                    {op.layers, op.width, op.width},
                                    {1, op.width, op.projection},
                                    {1, op.projection, op.outputs}};
  for (const auto& [count, from, to] : linear) {
    add_sum(list, "gradients", count, from * to, kReal, ranks);
    add_sum(list, "gradients", count, to, kReal, ranks);
  }
  // The metric and the loss forward, the loss backward.
  add_sum(list, "sums", 3, kSampleSums * op.batch, kDouble, ranks);
  // A ring of one number, which the last rank owns (docs/reductions.md).
  list.push_back({"norm", 1, ranks == 2 ? kDouble : 2 * kDouble,
                  2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks) * kDouble,
                  2 * (ranks - 1), 2 * (ranks - 1)});
  return list;
}

std::int64_t bytes_of_first(const std::vector<Exchange>& list, const std::string& what) {
  std::int64_t bytes = 0;
  for (const Exchange& exchange : list)
    if (what.empty() || what == exchange.what) bytes += exchange.count * exchange.first;
  return bytes;
}

double link_seconds(const std::vector<Exchange>& list, const SlabLink& link, Latencies latencies) {
  double seconds = 0;
  for (const Exchange& exchange : list) {
    const std::int64_t waits = latencies == Latencies::kOverlap ? exchange.rounds : exchange.messages;
    seconds += static_cast<double>(exchange.count) *
               (exchange.most / link.bandwidth + static_cast<double>(waits) * link.latency);
  }
  return seconds;
}

// The tables of the file.

namespace {

constexpr OptionSpec kSlabsOptions[] = {
    option::integer("cut", "0")
        .between(0, 2)
        .doc_text("dimension of the points that is sharded over the ranks"),
    option::integers("measured", "[1, 2]").doc_text("ranks as threads under the wall clock"),
    option::integers("counted", "[1, 2]")
        .doc_text("ranks under the simulated clock, whose bytes are counted"),
    option::integers("predicted", nullptr).mandatory().doc_text("ranks that closed forms are computed for"),
};

constexpr OptionSpec kSlabLinkOptions[] = {
    option::text("name", nullptr).mandatory().doc_text("of the link in table.json"),
    option::text("title", "\"\"").doc_text("for the table; the name if absent"),
    option::real("bandwidth", nullptr)
        .mandatory()
        .at_least(1)
        .in_unit("bytes/s")
        .doc_text("of one direction of a rank's link"),
    option::real("latency", "0").at_least(0).in_unit("s").doc_text("of a message"),
};

constexpr OptionSpec kProblemOptions[] = {
    option::text("arm", nullptr).mandatory().doc_text("which arm solves it"),
    option::text("size", nullptr).mandatory().doc_text("at which size of the study"),
    option::integers("points", nullptr).mandatory().at_least(1).doc_text("of the field, per dimension"),
    option::integers("modes", nullptr).mandatory().at_least(1).doc_text("kept per dimension"),
    option::boolean("of_one_rank", "false")
        .doc_text("points and modes along the sharded dimension are those of one rank: weak scaling"),
};

void check_ranks(const std::vector<std::int64_t>& ranks, const std::string& key, Problems& report) {
  if (ranks.empty()) report.say(key, "name at least one number of ranks, e.g. [1, 2, 4]");
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 1 || ranks[i] > 4096)
      report.say(key, fmt::format("{} is not a number of ranks; expected 1 to 4096", ranks[i]));
    if (i > 0 && ranks[i] <= ranks[i - 1])
      report.say(key, fmt::format("{} follows {}; values must ascend", ranks[i], ranks[i - 1]));
  }
}

/// Returns "", or why the problem cannot be sharded over this many ranks.
std::string refusal(const SlabProblem& problem, std::int64_t ranks, int sharded_dim) {
  const std::size_t at = sharded_dim;
  if (!problem.of_one_rank && problem.points[at] % ranks != 0)
    return fmt::format("{} points along dimension {} do not form equal slabs for {} ranks",
                       problem.points[at], sharded_dim, ranks);
  const SlabOperator whole = problem.whole(ranks, sharded_dim), local = problem.local(ranks, sharded_dim);
  if (whole.useful_ranks() < ranks)
    return fmt::format(
        "{} ranks share {} modes along dimension {}: some would have none; keep more modes, "
        "or predict fewer ranks",
        ranks, whole.kept(whole.other()), whole.other());
  for (int dim = 0; dim < static_cast<int>(local.points.size()); ++dim) {
    const std::size_t d = dim;
    const std::int64_t most = local.points[d] / 2 + (d + 1 == local.points.size() ? 1 : 0);
    if (local.modes[d] > most)
      return fmt::format("on one of {} ranks dimension {} has {} points, and {} modes: expected at most {}",
                         ranks, dim, local.points[d], local.modes[d], most);
  }
  return "";
}

void check_problem(const Slabs& slabs, const StudyFile& study, std::size_t index, Problems& report) {
  const SlabProblem& problem = slabs.problems[index];
  const auto key = [&](const char* name) { return fmt::format("slabs.problem[{}].{}", index, name); };
  const Size* size = study.size(problem.size);
  if (size == nullptr)
    return report.say(key("size"), fmt::format("the study has no size '{}'", problem.size));
  if (slabs.problem(problem.arm, problem.size) != &problem)
    report.say(key("size"), fmt::format("arm '{}' has two problems at size {}", problem.arm, problem.size));
  const std::size_t dims = problem.points.size();
  if (dims < 2 || dims > 4) {
    report.say(key("points"), fmt::format("expected 2 to 4 dimensions, found {}", dims));
  } else if (problem.modes.size() != dims) {
    report.say(key("modes"),
               fmt::format("expected {} numbers as in points, found {}", dims, problem.modes.size()));
  } else if (slabs.sharded_dim + 1 >= static_cast<int>(dims)) {
    report.say("slabs.cut",
               fmt::format("slabs need the last dimension unsharded: expected a dimension below {}, found {}",
                           dims - 1, slabs.sharded_dim));
  } else {
    for (const auto* list : {&slabs.measured, &slabs.counted, &slabs.predicted_at(*size)}) {
      for (const std::int64_t ranks : *list) {
        const std::string why = ranks < 1 ? "" : refusal(problem, ranks, slabs.sharded_dim);
        if (why.empty()) continue;
        report.say(key("points"), why);
        return;
      }
    }
  }
}

}  // namespace

SlabOperator SlabProblem::whole(std::int64_t ranks, int sharded_dim) const {
  SlabOperator op{.points = points, .modes = modes, .sharded_dim = sharded_dim};
  const std::size_t at = sharded_dim;
  if (of_one_rank) op.points[at] *= ranks, op.modes[at] *= ranks;
  return op;
}

SlabOperator SlabProblem::local(std::int64_t ranks, int sharded_dim) const {
  SlabOperator op{.points = points, .modes = modes, .sharded_dim = sharded_dim};
  const std::size_t at = sharded_dim;
  if (!of_one_rank) op.points[at] /= ranks, op.modes[at] = std::max<std::int64_t>(1, op.modes[at] / ranks);
  return op;
}

const std::vector<std::int64_t>& Slabs::predicted_at(const Size& size) const {
  return size.points.empty() ? predicted : size.points;
}

const SlabProblem* Slabs::problem(const std::string& arm, const std::string& size) const {
  for (const SlabProblem& one : problems)
    if (one.arm == arm && one.size == size) return &one;
  return nullptr;
}

std::vector<config::TableSpecs> Slabs::file_tables() const {
  return {{"slabs", kSlabsOptions},
          {"slabs.link", kSlabLinkOptions, true},
          {"slabs.problem", kProblemOptions, true}};
}

void Slabs::read(const Value& table) {
  OptionRequest request{.table = table, .owner = "slabs", .specs = option_list(kSlabsOptions)};
  for (const char* key : {"link", "problem"}) request.other_keys.push_back(key);
  const Resolution found = resolve_options(request);
  sharded_dim = static_cast<int>(found.options->integer("cut"));
  measured = integers_of(*found.options, "measured");
  counted = integers_of(*found.options, "counted");
  predicted = integers_of(*found.options, "predicted");
  const auto each = [&](const char* key, std::span<const OptionSpec> specs, const auto& add) {
    const Value* list = table.find(key);
    for (std::size_t i = 0; list != nullptr && i < list->array().size(); ++i) {
      const Resolution one = resolve_options({.table = list->array()[i],
                                              .owner = fmt::format("slabs.{}[{}]", key, i),
                                              .specs = option_list(specs)});
      add(*one.options);
    }
  };
  each("link", kSlabLinkOptions, [&](const tenon::Options& options) {
    const std::string name(options.text("name")), title(options.text("title"));
    links.push_back({name, title.empty() ? name : title, options.real("bandwidth"), options.real("latency")});
  });
  each("problem", kProblemOptions, [&](const tenon::Options& options) {
    problems.push_back({std::string(options.text("arm")), std::string(options.text("size")),
                        integers_of(options, "points"), integers_of(options, "modes"),
                        options.boolean("of_one_rank")});
  });
}

void Slabs::check(const StudyFile& study, Problems& report) const {
  check_ranks(measured, "slabs.measured", report);
  check_ranks(counted, "slabs.counted", report);
  check_ranks(predicted, "slabs.predicted", report);
  if (links.empty())
    report.say("slabs", "efficiency needs a link: [[slabs.link]] with name, bandwidth and latency");
  std::set<std::string> names;
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (!names.insert(links[i].name).second)
      report.say(fmt::format("slabs.link[{}].name", i),
                 fmt::format("two links are called '{}'", links[i].name));
  }
  for (std::size_t i = 0; i < problems.size(); ++i) {
    report.arm_named(fmt::format("slabs.problem[{}].arm", i), problems[i].arm);
    check_problem(*this, study, i, report);
  }
  for (const Size& size : study.sizes) {
    if (!size.points.empty()) check_ranks(size.points, fmt::format("size.{}.points", size.name), report);
    for (const StudyArm& arm : study.arms) {
      if (problem(arm.arm.name, size.name) == nullptr)
        report.say(
            "slabs.problem",
            fmt::format("arm '{}' has none at size {}: [[slabs.problem]] with arm, size, points and modes",
                        arm.arm.name, size.name));
    }
  }
  report.alone(*this);
}

// Runs.

namespace {

constexpr std::int64_t kFieldSamples = 2;    // one is trained on, one held out
constexpr std::int64_t kVirtualUpdates = 3;  // one update's bytes and virtual seconds are every update's

std::string extents_of(const SlabOperator& op) {
  return fmt::format("{}", fmt::join(op.points, "x"));
}

SlabOperator field_of(const StudyFile& study, const Size& size, const SlabRun& run) {
  const SlabProblem& problem = *study.as<Slabs>().problem(run.arm, size.name);
  return run.kind == SlabKind::kLocal ? problem.local(run.ranks, study.as<Slabs>().sharded_dim)
                                      : problem.whole(run.ranks, study.as<Slabs>().sharded_dim);
}

std::string field_path(const std::string& folder, const SlabOperator& op) {
  return (std::filesystem::path(folder) / (extents_of(op) + ".npy")).string();
}

/// These follow the arm's own words, which must not change what is compared.
std::vector<std::string> sets_of(const StudyFile& study, const SlabRun& run, const SlabOperator& op,
                                 const std::string& path) {
  const SlabLink& link = study.as<Slabs>().links.front();
  const std::string sharding = fmt::format("dims=[{}],axes=[0]", 2 + op.sharded_dim);
  std::vector<std::string> sets{
      fmt::format("data.inputs=[\"x={}\"]", path),
      fmt::format("data.targets=[\"y={}\"]", path),
      fmt::format("data.shapes=[\"x=1x{0}\",\"y=1x{0}\"]", extents_of(op)),
      "data.val_inputs=[]",
      "data.val_targets=[]",
      "data.val_fraction=0.5",
      "data.batch=1",
      fmt::format("model.modes=[{}]", fmt::join(op.modes, ",")),
      fmt::format("model.insert=[{{after=\"x\",name=\"spread\",type=\"repartition\",{0}}},"
                  "{{after=\"y\",name=\"targets\",type=\"repartition\",{0}}}]",
                  sharding),
      "model.override=[{match=\"*.spectral\",form=\"slab\"}]",
      fmt::format("parallel.grid=[{}]", run.kind == SlabKind::kLocal ? 1 : run.ranks),
      "transport.type=thread",
      "run.log_every=1",
      "run.eval_every=0",
      "run.eval_batches=1",
      "device.threads=1"};
  if (run.kind == SlabKind::kVirtual) {
    sets.push_back("transport.clock={type=\"simulated\",compute_seconds=0}");
    sets.push_back(
        fmt::format("transport.link={{bandwidth={:.17g},latency={:.17g}}}", link.bandwidth, link.latency));
  }
  return sets;
}

/// Assumptions of the closed forms, by key.
constexpr struct {
  const char *key, *value;
} kTaken[] = {{"model.type", "\"fno\""},      {"model.coordinates", "true"}, {"model.norm", "\"none\""},
              {"precision.type", "\"fp32\""}, {"parallel.ranks", "1"},       {"run.accumulate", "1"}};

}  // namespace

std::string SlabRun::name() const {
  const char* const words[] = {"local", "threads", "virtual"};
  return fmt::format("{}.{}.{}", arm, words[static_cast<std::size_t>(kind)], ranks);
}

std::vector<SlabRun> slab_runs(const StudyFile& study, const Size& size) {
  const Slabs& slabs = study.as<Slabs>();
  std::vector<SlabRun> runs;
  for (const StudyArm& arm : study.arms) {
    const std::string& name = arm.arm.name;
    std::set<std::int64_t> alone{1};
    if (!slabs.problem(name, size.name)->of_one_rank) {
      for (const auto* list : {&slabs.measured, &slabs.counted, &slabs.predicted_at(size)})
        alone.insert(list->begin(), list->end());
    }
    for (const std::int64_t ranks : alone) runs.push_back({name, SlabKind::kLocal, ranks});
    for (const std::int64_t ranks : slabs.measured)
      if (ranks > 1) runs.push_back({name, SlabKind::kThreads, ranks});
    for (const std::int64_t ranks : slabs.counted)
      if (ranks > 1) runs.push_back({name, SlabKind::kVirtual, ranks});
  }
  return runs;
}

StudyFile at_slabs(const StudyFile& study, const Size& size, const std::string& data_folder) {
  StudyFile out = study;
  out.arms.clear();
  for (const SlabRun& run : slab_runs(study, size)) {
    const SlabOperator op = field_of(study, size, run);
    StudyArm arm = *study.arm(run.arm);
    arm.of = run.arm;
    arm.trainers = run.ranks;
    arm.arm.name = run.name();
    arm.baseline = run.name();  // runs are compared by their times, not by their losses
    arm.steps_over = 1;
    if (run.kind == SlabKind::kVirtual) arm.arm.steps = kVirtualUpdates;
    const std::vector<std::string> sets = sets_of(study, run, op, field_path(data_folder, op));
    arm.arm.set.insert(arm.arm.set.end(), sets.begin(), sets.end());
    arm.added = sets.size();
    out.arms.push_back(std::move(arm));
  }
  return out;
}

void write_fields(FileSystem& files, const StudyFile& study, const Size& size,
                  const std::string& data_folder) {
  files.make_directories(data_folder);
  const RandomKey key = random_key(1, "reproduce.fields");
  for (const SlabRun& run : slab_runs(study, size)) {
    const SlabOperator op = field_of(study, size, run);
    const std::string path = field_path(data_folder, op);
    if (files.exists(path)) continue;
    std::vector<std::int64_t> extents{kFieldSamples};
    extents.insert(extents.end(), op.points.begin(), op.points.end());
    const Shape shape{std::span<const std::int64_t>(extents)};
    std::vector<float> values(shape.elements());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random_normal(key, 0, i));
    write_npy(files, path, {values.data(), shape, DType::kF32, MemorySpace::kHost});
  }
}

SlabOperator operator_of(const StudyFile& study, const Size& size, const SlabRun& run,
                         const ResolvedRun& resolved) {
  const std::map<std::string, std::string> flat = flatten(resolved.root);
  const auto value = [&](const std::string& key) {
    const auto found = flat.find(key);
    return found == flat.end() ? std::string("absent") : found->second;
  };
  const auto refuse = [&](const std::string& key, const std::string& expected) {
    fail_config(fmt::format("tenon reproduce: {}: arm '{}': closed forms of slabs need {} = {}, found {}",
                            study.path, run.arm, key, expected, value(key)));
  };
  for (const auto& [key, expected] : kTaken)
    if (value(key) != expected) refuse(key, expected);
  // As the resolved configuration writes a list of zeros of any length.
  if (value("model.padding").find_first_not_of("[]0., ") != std::string::npos) refuse("model.padding", "[0]");
  SlabOperator op =
      study.as<Slabs>().problem(run.arm, size.name)->whole(run.ranks, study.as<Slabs>().sharded_dim);
  op.width = std::stoll(value("model.width"));
  op.layers = std::stoll(value("model.layers"));
  op.projection = std::stoll(value("model.projection"));
  return op;
}

void require_closed_forms(const StudyFile& study, const Size& size, const Plan& plan) {
  const std::vector<SlabRun> runs = slab_runs(study, size);
  for (std::size_t i = 0; i < runs.size(); ++i) operator_of(study, size, runs[i], plan.arms[i]);
}

StudyFile Slabs::as_runs(const StudyFile& given, const Size& size, const std::string& folder) const {
  const std::string data = (std::filesystem::path(folder) / "data").lexically_normal().string();
  const auto files = make_posix_files();
  write_fields(*files, given, size, data);
  return at_slabs(given, size, data);
}

void Slabs::check_plan(const StudyFile& given, const Size& size, const Plan& plan) const {
  require_closed_forms(given, size, plan);
}

// Numbers.

namespace {

std::optional<double> median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// Value per update: the median over the intervals after the second line of training metrics, mean over
/// seeds.
std::optional<double> per_update(const ArmResult& arm, double ab::MetricPoint::*what) {
  double sum = 0;
  int seeds = 0;
  for (const RunResult& run : arm.runs) {
    if (!run.record || run.status != "completed") continue;
    const auto found = run.record->series.find("train/loss");
    if (found == run.record->series.end()) continue;
    const ab::Series& lines = found->second;
    std::vector<double> each;
    for (std::size_t i = 2; i < lines.size(); ++i)
      each.push_back((lines[i].*what - lines[i - 1].*what) /
                     static_cast<double>(lines[i].step - lines[i - 1].step));
    const std::optional<double> middle = median(each);
    if (!middle) continue;
    sum += *middle;
    ++seeds;
  }
  return seeds == 0 ? std::nullopt : std::optional(sum / seeds);
}

void add_prediction(SlabPoint& point, const SlabArm& arm, const std::vector<Exchange>& list,
                    const std::vector<SlabLink>& links, std::optional<double> alone_s) {
  for (const Latencies latencies : {Latencies::kOverlap, Latencies::kAdd}) {
    for (const SlabLink& link : links) {
      SlabTime time{link_seconds(list, link, latencies), {}};
      if (alone_s && point.compute_s) {
        const double over = arm.weak ? 1 : static_cast<double>(point.ranks);
        time.efficiency = *alone_s / (over * (*point.compute_s + time.link_s));
      }
      (latencies == Latencies::kOverlap ? point.overlapped : point.added).push_back(time);
    }
  }
}

SlabArm read_slab_arm(StudyResult& r, const Plan& plan, const std::vector<SlabRun>& runs,
                      const std::string& name) {
  const Slabs& slabs = r.study.as<Slabs>();
  const SlabProblem& problem = *slabs.problem(name, r.size.name);
  const auto index_of = [&](SlabKind kind, std::int64_t ranks) {
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (runs[i].arm == name && runs[i].kind == kind && runs[i].ranks == ranks) return i;
    return runs.size();
  };
  const auto from = [&](SlabKind kind, std::int64_t ranks, double ab::MetricPoint::*what) {
    const std::size_t i = index_of(kind, ranks);
    return i == runs.size() ? std::nullopt : per_update(r.arms[i], what);
  };
  const std::size_t alone = index_of(SlabKind::kLocal, 1);
  SlabArm arm{name, r.study.arms[alone].title, problem.of_one_rank, {}, {}};
  arm.one = operator_of(r.study, r.size, runs[alone], plan.arms[alone]);
  const std::optional<double> alone_s = from(SlabKind::kLocal, 1, &ab::MetricPoint::wall_s);
  std::set<std::int64_t> all{1};
  for (const auto* list : {&slabs.measured, &slabs.counted, &slabs.predicted_at(r.size)})
    all.insert(list->begin(), list->end());
  for (const std::int64_t ranks : all) {
    SlabOperator op = arm.one;
    const SlabOperator whole = problem.whole(ranks, slabs.sharded_dim);
    op.points = whole.points, op.modes = whole.modes;
    const std::vector<Exchange> list = exchanges(op, ranks);
    SlabPoint point;
    point.ranks = ranks;
    point.points = op.points;
    point.local_points = problem.local(ranks, slabs.sharded_dim).points;
    point.elements = move_elements(op, ranks);
    point.bytes = bytes_of_first(list);
    point.move_bytes = bytes_of_first(list, "moves");
    point.compute_s = from(SlabKind::kLocal, arm.weak ? 1 : ranks, &ab::MetricPoint::wall_s);
    point.threads_s = from(SlabKind::kThreads, ranks, &ab::MetricPoint::wall_s);
    if (point.threads_s && alone_s)
      point.threads_efficiency = *alone_s / (arm.weak ? 1 : static_cast<double>(ranks)) / *point.threads_s;
    point.virtual_s = from(SlabKind::kVirtual, ranks, &ab::MetricPoint::wall_s);
    point.counted_bytes = from(SlabKind::kVirtual, ranks, &ab::MetricPoint::bytes_sent);
    if (point.counted_bytes && *point.counted_bytes != static_cast<double>(point.bytes)) {
      r.warnings.push_back(
          fmt::format("{} over {} ranks: rank 0 sent {:.0f} bytes in an update, and the closed form says {}",
                      name, ranks, *point.counted_bytes, point.bytes));
      r.complete = false;
    }
    add_prediction(point, arm, list, slabs.links, alone_s);
    arm.points.push_back(std::move(point));
  }
  return arm;
}

}  // namespace

void read_slab_results(StudyResult& r, const Plan& plan) {
  StudyFile given = r.study;  // with an arm per arm of the file, as the runs were derived from it
  given.arms.clear();
  for (const StudyArm& arm : r.study.arms) {
    if (!given.arms.empty() && given.arms.back().arm.name == arm.of) continue;
    given.arms.push_back(arm);
    given.arms.back().arm.name = arm.of;
  }
  const std::vector<SlabRun> runs = slab_runs(given, r.size);
  auto out = std::make_shared<SlabResult>();
  for (const StudyArm& arm : given.arms) out->arms.push_back(read_slab_arm(r, plan, runs, arm.arm.name));
  r.numbers = std::move(out);
  // Virtual seconds are not wall time.
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].kind != SlabKind::kVirtual) continue;
    for (const RunResult& run : r.arms[i].runs)
      if (run.record) r.provenance.wall_s -= run.record->wall_s;
  }
  r.provenance.simulated = {"seconds of the link, simulated"};
}

void Slabs::read_numbers(StudyResult& result, const Plan& plan, const std::string&) const {
  read_slab_results(result, plan);
}

// Tables.

namespace {

constexpr const char* kAbsent = "–";

std::string percent(const std::optional<double>& share) {
  return share ? ab::fixed(100 * *share, 1) : kAbsent;
}

/// Milliseconds with three digits.
std::string milliseconds(const std::optional<double>& seconds) {
  if (!seconds) return kAbsent;
  const double ms = 1000 * *seconds;
  return ab::fixed(ms, ms >= 100 ? 0 : ms >= 10 ? 1 : ms >= 1 ? 2 : 3);
}

std::string whole(const std::optional<double>& bytes) {
  return bytes ? count(*bytes) : kAbsent;
}

std::string extents(const std::vector<std::int64_t>& points) {
  return fmt::format("{}", fmt::join(points, " x "));
}

std::string predicted_table(const StudyResult& r, const SlabArm& arm) {
  const std::vector<SlabLink>& links = r.study.as<Slabs>().links;
  std::vector<std::string> names{"ranks", "field", "field of a rank", "computing, ms, measured on one rank"};
  for (const SlabLink& link : links) {
    names.push_back(fmt::format("links, ms, by formula: {}", link.title));
    names.push_back("efficiency, %");
    names.push_back("latencies added up: efficiency, %");
  }
  std::string out = head(names);
  for (const SlabPoint& point : arm.points) {
    std::vector<std::string> cells{std::to_string(point.ranks), extents(point.points),
                                   extents(point.local_points), milliseconds(point.compute_s)};
    for (std::size_t i = 0; i < links.size(); ++i) {
      cells.push_back(milliseconds(point.overlapped[i].link_s));
      cells.push_back(percent(point.overlapped[i].efficiency));
      cells.push_back(percent(point.added[i].efficiency));
    }
    out += row(cells);
  }
  return out;
}

std::string counted_table(const SlabArm& arm) {
  std::string out =
      head({"ranks", "complex numbers of a move, by formula", "bytes of rank 0 in an update, counted",
            "by formula", "of them moves, by formula", "links, ms, simulated", "by formula"});
  for (const SlabPoint& point : arm.points) {
    if (!point.counted_bytes && point.ranks > 1) continue;
    out += row({std::to_string(point.ranks), count(static_cast<double>(point.elements)),
                point.ranks == 1 ? "0" : whole(point.counted_bytes), count(static_cast<double>(point.bytes)),
                count(static_cast<double>(point.move_bytes)), milliseconds(point.virtual_s),
                milliseconds(point.overlapped.front().link_s)});
  }
  return out;
}

std::string threads_table(const SlabArm& arm) {
  std::string out = head({"ranks", "an update, ms, measured", "efficiency, %"});
  for (const SlabPoint& point : arm.points) {
    if (point.ranks == 1) out += row({"1", milliseconds(point.compute_s), "100"});
    if (!point.threads_s) continue;
    out +=
        row({std::to_string(point.ranks), milliseconds(point.threads_s), percent(point.threads_efficiency)});
  }
  return out;
}

}  // namespace

std::string Slabs::tables(const StudyResult& r) const {
  std::string out, counted, threads;
  for (const SlabArm& arm : r.as<SlabResult>().arms) {
    const SlabOperator& op = arm.one;
    const std::string title = fmt::format("### {}: {} scaling\n\n", arm.title, arm.weak ? "weak" : "strong");
    out += title +
           fmt::format("{} layers of {} channels, modes {} on one rank, sharded along dimension {}.\n\n",
                       op.layers, op.width, extents(op.modes), op.sharded_dim) +
           predicted_table(r, arm) + "\n";
    counted += title + counted_table(arm) + "\n";
    threads += title + threads_table(arm) + "\n";
  }
  out +=
      "Efficiency is T(1) / T(P) for weak and T(1) / (P T(P)) for strong scaling, where T(P) = computing + "
      "links. Computing is **measured**: an update of one rank, one thread of the machine below, on the "
      "field that one of P ranks has, with as many modes along the sharded dimension as keep its number of "
      "modes. Links are **computed**: bytes of the busiest rank / bandwidth + latencies, no overlap with "
      "compute. "
      "Messages of one exchange overlap their latencies; in the columns \"added up\" each waits for the one "
      "before. No network and no other machine was measured.\n";
  out += "\n## Bytes, counted, and seconds of the links, simulated\n\n" + counted +
         fmt::format(
             "Counted on ranks under the simulated clock, which are threads of this machine and send "
             "every byte; their computing costs nothing, so what an update takes is the links' ({}). "
             "A move: B C x kept modes x points of the sharded dimension x (1 - sum over ranks of share of "
             "modes x share of points); an update has four per layer, sums of the gradients of weights "
             "that all ranks hold, three sums of losses and a norm.\n",
             r.study.as<Slabs>().links.front().title);
  return out + "\n## Measured with threads on this machine\n\n" + threads +
         "Ranks are threads that exchange through memory, one thread each, and share the machine below.\n";
}

void Slabs::json(JsonWriter& json, const StudyResult& r) const {
  const auto number = [&](const char* key, const std::optional<double>& value) {
    json.member(key, value.value_or(JsonWriter::kNull));
  };
  json.objects("slabs", r.as<SlabResult>().arms, [&](const SlabArm& arm) {
    json.member("arm", arm.name);
    json.member("title", arm.title);
    json.member("scaling", arm.weak ? "weak" : "strong");
    json.objects("points", arm.points, [&](const SlabPoint& point) {
      json.member("ranks", point.ranks);
      json.member("field", fmt::format("{}", fmt::join(point.points, "x")));
      json.member("field_of_a_rank", fmt::format("{}", fmt::join(point.local_points, "x")));
      json.member("move_elements_by_formula", point.elements);
      json.member("bytes_by_formula", point.bytes);
      json.member("move_bytes_by_formula", point.move_bytes);
      number("bytes_counted", point.counted_bytes);
      number("compute_s_measured", point.compute_s);
      number("threads_s_measured", point.threads_s);
      number("threads_efficiency_measured", point.threads_efficiency);
      number("link_s_simulated", point.virtual_s);
      std::size_t i = 0;
      json.objects("links", r.study.as<Slabs>().links, [&](const SlabLink& link) {
        json.member("link", link.name);
        json.member("bandwidth", link.bandwidth);
        json.member("latency", link.latency);
        json.member("link_s_by_formula", point.overlapped[i].link_s);
        number("efficiency_predicted", point.overlapped[i].efficiency);
        json.member("link_s_latencies_added", point.added[i].link_s);
        number("efficiency_latencies_added", point.added[i].efficiency);
        ++i;
      });
    });
  });
  Arms::json(json, r);
}

std::string Slabs::lines(const StudyResult& r) const {
  std::string out;
  for (const SlabArm& arm : r.as<SlabResult>().arms) {
    for (std::size_t i = 0; i < r.study.as<Slabs>().links.size(); ++i) {
      out +=
          fmt::format("  {:<12}{:<24} efficiency predicted, %:", arm.name, r.study.as<Slabs>().links[i].name);
      for (const SlabPoint& point : arm.points)
        out += fmt::format(" {} at {};", percent(point.overlapped[i].efficiency), point.ranks);
      out += "\n";
    }
    for (const SlabPoint& point : arm.points) {
      if (point.threads_efficiency)
        out += fmt::format("  {:<12}{} threads, measured: {} %\n", arm.name, point.ranks,
                           percent(point.threads_efficiency));
    }
  }
  return out;
}

std::string Slabs::size_text(const StudyFile& study, const Size& size) const {
  std::vector<std::string> names;  // of a study whose arms are its runs already, too
  for (const StudyArm& arm : study.arms) {
    const std::string& name = arm.of.empty() ? arm.arm.name : arm.of;
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return fmt::format("{} arm{} on up to {} ranks x {} seed{} x {} updates", names.size(),
                     names.size() == 1 ? "" : "s", predicted_at(size).back(), size.seeds.size(),
                     size.seeds.size() == 1 ? "" : "s", size.steps);
}

/// Efficiency against the logarithm of the ranks, a line per arm and link.
std::string Slabs::figure(const StudyResult& r) const {
  LineFigure figure{
      .x_title = "log2 of the ranks",
      .names = {},
      .under_title = "computing measured on one rank, links by formula",
      .panels = {
          {.title = "efficiency, %, predicted", .lines = {}, .from_zero = true, .slope = {}},
          {.title = "efficiency, %, latencies added up", .lines = {}, .from_zero = true, .slope = {}}}};
  for (const SlabArm& arm : r.as<SlabResult>().arms) {
    for (std::size_t i = 0; i < r.study.as<Slabs>().links.size(); ++i) {
      figure.names.push_back(fmt::format("{}, {}", arm.title, r.study.as<Slabs>().links[i].title));
      for (LinePanel& panel : figure.panels) {
        std::vector<ab::Point>& line = panel.lines.emplace_back();
        for (const SlabPoint& point : arm.points) {
          const std::optional<double> share =
              (&panel == &figure.panels.front() ? point.overlapped : point.added)[i].efficiency;
          if (share) line.push_back({std::log2(static_cast<double>(point.ranks)), 100 * *share});
        }
      }
    }
  }
  return line_figure(r, figure);
}

std::shared_ptr<StudyKind> make_slabs_kind() {
  return std::make_shared<Slabs>();
}

}  // namespace tenon::reproduce
