// Runs of slabs_runs.hpp.
#include "reproduce/slabs_runs.hpp"

#include <tenon/error.hpp>
#include <tenon/random.hpp>
#include <tenon/sdk/npy.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace tenon::reproduce {
namespace {

constexpr std::int64_t kFieldSamples = 2;    // one is trained on, one held out
constexpr std::int64_t kVirtualUpdates = 3;  // one update's bytes and virtual seconds are every update's

std::string extents_of(const SlabOperator& op) {
  return fmt::format("{}", fmt::join(op.points, "x"));
}

SlabOperator field_of(const StudyFile& study, const Size& size, const SlabRun& run) {
  const SlabProblem& problem = *study.slabs->problem(run.arm, size.name);
  return run.kind == SlabKind::kLocal ? problem.local(run.ranks, study.slabs->cut)
                                      : problem.whole(run.ranks, study.slabs->cut);
}

std::string field_path(const std::string& folder, const SlabOperator& op) {
  return (std::filesystem::path(folder) / (extents_of(op) + ".npy")).string();
}

/// These follow the arm's own words, which must not change what is compared.
std::vector<std::string> sets_of(const StudyFile& study, const SlabRun& run, const SlabOperator& op,
                                 const std::string& path) {
  const SlabLink& link = study.slabs->links.front();
  const std::string cut = fmt::format("dims=[{}],axes=[0]", 2 + op.cut);
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
                  cut),
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
  const Slabs& slabs = *study.slabs;
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
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
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
  SlabOperator op = study.slabs->problem(run.arm, size.name)->whole(run.ranks, study.slabs->cut);
  op.width = std::stoll(value("model.width"));
  op.layers = std::stoll(value("model.layers"));
  op.projection = std::stoll(value("model.projection"));
  return op;
}

void require_closed_forms(const StudyFile& study, const Size& size, const Plan& plan) {
  const std::vector<SlabRun> runs = slab_runs(study, size);
  for (std::size_t i = 0; i < runs.size(); ++i) operator_of(study, size, runs[i], plan.arms[i]);
}

}  // namespace tenon::reproduce
