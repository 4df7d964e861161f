// The member "scaling" of table.json; see scaling_render.hpp.
#include "reproduce/scaling_render.hpp"

#include "base/json_writer.hpp"
#include "reproduce/scaling.hpp"

namespace tenon::reproduce {

void scaling_json(JsonWriter& json, const StudyResult& r) {
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
}

}  // namespace tenon::reproduce
