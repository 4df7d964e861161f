// Filling in and writing manifest.json; read_manifest is in run_files.cpp.
#include "record/manifest.hpp"

#include "base/json_writer.hpp"
#include "base/process_facts.hpp"

namespace tenon {
namespace {

void write_texts(JsonWriter& json, std::string_view key, const NamedTexts& texts) {
  json.begin_object(key);
  for (const auto& [name, value] : texts) json.member(name, value);
  json.end_object();
}

}  // namespace

Manifest begin_manifest(std::string command_line, std::int64_t first_step) {
  Manifest manifest;
  manifest.build = build_info();
  manifest.cpu_model = cpu_model();
  manifest.cpu_cores = usable_cores();
  manifest.environment = relevant_environment();
  manifest.segments.push_back({.command_line = std::move(command_line),
                               .first_step = first_step,
                               .start = utc_now(),
                               .end = {},
                               .exit_reason = {}});
  return manifest;
}

void write_manifest(FileSystem& files, const std::string& folder, const Manifest& manifest) {
  JsonWriter json;
  json.begin_object();
  json.begin_object("program");
  json.member("version", manifest.build.version);
  json.member("git", manifest.build.git);
  json.member("git_dirty", manifest.build.git_dirty);
  json.member("compiler", manifest.build.compiler);
  json.member("compiler_flags", manifest.build.flags);
  json.member("build_type", manifest.build.build_type);
  json.end_object();
  json.begin_object("cpu");
  json.member("model", manifest.cpu_model);
  json.member("features", manifest.cpu_features);
  json.member("cores", manifest.cpu_cores);
  json.end_object();
  json.member("kernels", manifest.kernels);
  if (!manifest.device_choice.empty()) json.member("device_choice", manifest.device_choice);
  json.member("ranks", manifest.ranks);
  json.member("threads", manifest.threads);
  json.begin_object("seeds");
  json.member("seed", manifest.seed);
  json.member("seed_init", manifest.seed_init);
  json.member("seed_order", manifest.seed_order);
  json.member("seed_rounding", manifest.seed_rounding);
  json.end_object();
  json.member("rng", manifest.rng);
  json.member("config_sha256", manifest.config_sha256);
  json.objects("data", manifest.data, [&](const DataSource& source) {
    json.member("path", source.path);
    json.member("sha256", source.sha256);
  });
  if (!manifest.calibration.empty()) {
    json.begin_object("calibration");
    for (const auto& [name, seconds] : manifest.calibration) json.member(name, seconds);
    json.end_object();
  }
  write_texts(json, "libraries", manifest.libraries);
  write_texts(json, "environment", manifest.environment);
  // The short answers are at the top level; `segments` has the whole history of a resumed attempt.
  const ManifestSegment none;
  const ManifestSegment& first = manifest.segments.empty() ? none : manifest.segments.front();
  const ManifestSegment& last = manifest.segments.empty() ? none : manifest.segments.back();
  json.member("command_line", last.command_line);
  json.member("start", first.start);
  json.member("end", last.end);
  json.member("exit_reason", last.exit_reason);
  json.member("parent_run", manifest.parent_run);
  json.objects("segments", manifest.segments, [&](const ManifestSegment& segment) {
    json.member("command_line", segment.command_line);
    json.member("first_step", segment.first_step);
    json.member("start", segment.start);
    json.member("end", segment.end);
    json.member("exit_reason", segment.exit_reason);
  });
  json.end_object();
  write_text_atomically(files, folder + "/manifest.json", json.take());
}

}  // namespace tenon
