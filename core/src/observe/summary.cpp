// Writing summary.json; read_summary is in run_files.cpp.
#include "observe/summary.hpp"

#include "observe/json_writer.hpp"

namespace tenon {

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
  if (!result.error.empty()) json.member("error", result.error);
  json.end_object();
  write_text_atomically(files, result.folder + "/summary.json", json.take());
}

}  // namespace tenon
