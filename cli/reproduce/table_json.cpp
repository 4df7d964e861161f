// table.json and the list of studies as JSON; see render.hpp.
#include "reproduce/render.hpp"

#include "base/json_writer.hpp"
#include "reproduce/comparisons_render.hpp"
#include "reproduce/map_render.hpp"
#include "reproduce/recovery_render.hpp"
#include "reproduce/scaling_points.hpp"
#include "reproduce/scaling_render.hpp"
#include "reproduce/slabs_render.hpp"
#include "reproduce/time_to_render.hpp"

#include <cmath>

namespace tenon::reproduce {
namespace {

void member(JsonWriter& json, const char* key, const std::optional<ab::MeanEstimate>& estimate) {
  json.begin_object(key);
  json.member("pairs", estimate ? static_cast<std::int64_t>(estimate->n) : 0);
  json.member("mean", estimate ? estimate->mean : JsonWriter::kNull);
  json.member("low", estimate ? estimate->interval.low : JsonWriter::kNull);
  json.member("high", estimate ? estimate->interval.high : JsonWriter::kNull);
  json.end_object();
}

void texts(JsonWriter& json, const char* key, const char* name, const std::vector<std::string>& list) {
  json.objects(key, list, [&](const std::string& text) { json.member(name, text); });
}

void members(JsonWriter& json, const StudyFile& study, const StudyArm& what, const ArmResult& arm) {
  json.member("name", what.arm.name);
  json.member("title", what.title);
  json.member("note", what.note);
  json.member("baseline", what.baseline);
  texts(json, "set", "value", what.arm.set);
  json.member("parameters", arm.parameters.empty() ? JsonWriter::kNull : std::stod(arm.parameters));
  json.member("updates", arm.updates);
  json.member("updates_refused", arm.refused);
  json.member("samples", arm.samples);
  json.member("tokens", arm.tokens);
  json.member("bytes_per_rank", arm.bytes);
  member(json, "wall_s", arm.wall_s);
  member(json, "value", arm.value);
  member(json, "gap_percent", arm.gap);
  if (!study.reference.empty()) member(json, "reference_gap_percent", arm.reference_gap);
  json.objects("shares", arm.shares, [&](const Share& share) {
    json.member("metric", share.metric);
    json.member("percent", share.percent.value_or(JsonWriter::kNull));
  });
  json.objects("decisions", arm.decisions, [&](const Decision& decision) {
    json.member("layer", decision.layer);
    json.member("operand", decision.operand);
    json.member("percent", decision.percent);
    json.member("error_percent", decision.error_percent);
  });
  json.begin_object("quantized_operands");
  for (const auto& [format, count] : arm.operands) json.member(format, count);
  json.end_object();
  json.objects("runs", arm.runs, [&](const RunResult& run) {
    json.member("seed", run.seed);
    json.member("status", run.status);
    json.member("reason", run.reason);
    json.member("value", run.value ? *run.value : JsonWriter::kNull);
    json.member("weights_hash", run.record ? run.record->weights_hash : "");
    json.member("wall_s", run.record ? run.record->wall_s : JsonWriter::kNull);
    json.member("folder", run.record ? run.record->folder : "");
  });
}

void members(JsonWriter& json, const StudyFile& study, const Size& size) {
  json.member("name", size.name);
  json.member("arms", static_cast<std::int64_t>(study.arms.size()));
  json.member("seeds", static_cast<std::int64_t>(size.seeds.size()));
  json.member("updates", size.steps);
  if (study.scaling) {
    json.member("runs", static_cast<std::int64_t>(point_count(study, size) * size.seeds.size()));
    json.member("samples", size.samples);
  }
  json.member("minutes", size.minutes > 0 ? size.minutes : JsonWriter::kNull);
  json.member("machine", size.machine);
}

}  // namespace

std::string table_json(const StudyResult& r) {
  JsonWriter json;
  json.begin_object();
  json.member("study", r.study.name);
  json.member("title", r.study.title);
  json.member("paper", r.study.paper);
  json.member("question", r.study.question);
  json.member("size", r.size.name);
  json.member("quotable", caution(r.size).empty() && r.complete);
  json.member("complete", r.complete);
  json.member("metric", r.study.metric);
  json.member("baseline", r.study.baseline);
  json.member("reference", r.study.reference);
  json.member("gap", r.study.lower_is_better
                         ? "(baseline - arm) / baseline in per cent; negative = the arm is worse"
                         : "(arm - baseline) / baseline in per cent; negative = the arm is worse");
  json.member("coverage", 1 - r.study.alpha);
  json.begin_array("arms");
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    json.begin_object();
    members(json, r.study, r.study.arms[a], r.arms[a]);
    json.end_object();
  }
  json.end_array();
  if (r.study.scaling) scaling_json(json, r);
  if (r.slabs) slab_json(json, r);
  if (r.map) map_json(json, r);
  if (r.recovery) recovery_json(json, r);
  json.objects("paper_values", r.study.paper_values, [&](const PaperValue& value) {
    json.member("arm", value.arm);
    json.member("value", value.value);
    json.member("what", value.what);
    json.member("source", value.source);
  });
  if (r.time_to) time_to_json(json, r);
  comparisons_json(json, r);
  texts(json, "notes", "text", r.study.notes);
  texts(json, "warnings", "text", r.warnings);
  const Provenance& p = r.provenance;
  json.begin_object("provenance");
  json.member("command", p.command);
  json.member("begun", p.begun);
  json.member("ended", p.ended);
  texts(json, "program", "version", p.program);
  texts(json, "machines", "machine", p.machines);
  texts(json, "kernels", "set", p.kernels);
  texts(json, "threads", "number", p.threads);
  json.member("jobs", p.jobs);
  json.member("model", p.model);
  json.member("data", p.data);
  json.member("simulation", p.simulation);
  json.member("wall_s", p.wall_s);
  texts(json, "simulated_columns", "column", p.simulated);
  json.end_object();
  json.end_object();
  return json.take();
}

std::string list_json(const std::vector<StudyFile>& studies) {
  JsonWriter json;
  json.begin_object();
  json.objects("studies", studies, [&](const StudyFile& study) {
    json.member("name", study.name);
    json.member("title", study.title);
    json.member("paper", study.paper);
    json.member("question", study.question);
    json.member("file", study.path);
    json.objects("sizes", study.sizes, [&](const Size& size) { members(json, study, size); });
  });
  json.end_object();
  return json.take();
}

}  // namespace tenon::reproduce
