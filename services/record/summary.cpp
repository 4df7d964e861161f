// Writing summary.json; read_summary is in run_files.cpp.
#include "record/summary.hpp"

#include "base/json_writer.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tenon {
namespace {

void write_communication(JsonWriter& json, const RunResult& result) {
  json.objects("communication", result.communication, [&](const RankTime& rank) {
    json.member("compute_s", rank.compute_s);
    json.member("exposed_s", rank.exposed_s);
    json.member("late_s", rank.late_s);
    json.member("data_s", rank.data_s);
    json.member("evaluate_s", rank.evaluate_s);
    json.member("save_s", rank.save_s);
    json.member("other_s", rank.other_s);
    json.member("total_s", rank.total_s);
    json.member("overlapped_s", rank.overlapped_s);
    json.begin_object("purposes");
    for (const auto& [name, counts] : rank.purposes) {
      json.begin_object(name);
      json.member("bytes_sent", counts.bytes_sent);
      json.member("messages_sent", counts.messages_sent);
      json.member("operations", counts.operations);
      json.member("blocked_s", counts.blocked_seconds);
      json.member("late_s", counts.late_seconds);
      json.member("transfer_s", counts.transfer_seconds);
      json.end_object();
    }
    json.end_object();
  });
}

void write_distributions(JsonWriter& json, const RunResult& result) {
  json.begin_object("distributions");
  for (const auto& [name, d] : result.distributions) {
    json.begin_object(name);
    json.member("count", d.count);
    json.member("mean", d.mean);
    json.member("min", d.least);
    json.member("max", d.most);
    json.member("not_positive", d.not_positive);
    // Keys are lower ends: "4" counts what is in [4, 8).
    json.begin_object("histogram");
    for (const auto& [octave, count] : d.octaves)
      json.member(fmt::format("{:.17g}", std::ldexp(1.0, octave)), count);
    json.end_object();
    json.end_object();
  }
  json.end_object();
}

}  // namespace

void write_summary(FileSystem& files, const RunResult& result) {
  JsonWriter json;
  json.begin_object();
  json.member("status", result.status);
  json.member("steps", result.steps);
  json.member("samples", result.samples);
  json.member("tokens", result.tokens);
  json.member("wall_s", result.wall_s);
  json.member("bytes_sent", result.bytes_sent);
  json.begin_object("metrics");
  for (const auto& [name, value] : result.metrics) json.member(name, value);
  json.end_object();
  json.member("weights_hash", result.weights_hash);
  json.member("state_hash", result.state_hash);
  json.member("deterministic", result.nondeterminism.empty());
  if (!result.nondeterminism.empty()) json.member("nondeterminism", result.nondeterminism);
  json.member("peak_rss_mb", result.peak_rss_mb);
  json.member("peak_anonymous_mb", result.peak_anonymous_mb);
  json.member("stall_s", result.stall_s);
  json.member("hidden_comm_share", result.hidden_comm_share);
  json.begin_object("quantized_operands");
  for (const auto& [format, count] : result.quantized_operands) json.member(format, count);
  json.end_object();
  json.begin_object("bytes_by_purpose");
  for (const auto& [purpose, bytes] : result.bytes_by_purpose) json.member(purpose, bytes);
  json.end_object();
  if (!result.communication.empty()) write_communication(json, result);
  if (!result.distributions.empty()) write_distributions(json, result);
  if (!result.error.empty()) json.member("error", result.error);
  json.end_object();
  write_text_atomically(files, result.folder + "/summary.json", json.take());
}

}  // namespace tenon
