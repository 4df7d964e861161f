// The facts of the pages as JSON, in the order of the pages.
#include "report/pages.hpp"

#include "base/json_writer.hpp"

namespace tenon::report {
namespace {

void members(JsonWriter& json, const Run& run) {
  const ab::RunRecord& r = run.record;
  json.member("name", run.name);
  json.member("folder", r.folder);
  json.member("attempt", r.attempt);
  json.member("status", r.status);
  json.member("steps", r.steps);
  json.member("samples", r.samples);
  json.member("tokens", r.tokens);
  json.member("wall_s", r.wall_s);
  json.member("bytes_sent", r.bytes_sent);
  json.member("weights_hash", r.weights_hash);
  json.member("state_hash", r.state_hash);
  json.begin_object("metrics");
  for (const auto& [name, series] : r.series) {
    const MetricFacts facts = facts_of(series);
    json.begin_object(name);
    json.member("lines", facts.lines);
    json.member("last", facts.last);
    json.member("last_step", facts.last_step);
    json.member("least", facts.least);
    json.member("least_step", facts.least_step);
    json.member("most", facts.most);
    json.member("most_step", facts.most_step);
    json.end_object();
  }
  json.end_object();
  json.begin_object("config");
  for (const ConfigLine& line : run.config) {
    json.begin_object(line.key);
    json.member("value", line.value);
    json.member("origin", line.origin);
    json.end_object();
  }
  json.end_object();
  json.begin_object("manifest");
  for (const auto& [key, value] : r.manifest) json.member(key, manifest_text(r, key));
  json.end_object();
}

}  // namespace

std::string run_json(const Run& run) {
  JsonWriter json;
  json.begin_object();
  members(json, run);
  json.end_object();
  return json.take();
}

std::string runs_json(const std::string& folder, const std::vector<Run>& runs,
                      const std::vector<std::string>& unreadable) {
  JsonWriter json;
  json.begin_object();
  json.member("folder", folder);
  json.objects("runs", runs, [&](const Run& run) { members(json, run); });
  json.objects("unreadable", unreadable, [&](const std::string& reason) { json.member("reason", reason); });
  json.end_object();
  return json.take();
}

}  // namespace tenon::report
