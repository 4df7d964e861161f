// The member "time_to" of table.json; see time_to_render.hpp.
#include "base/json_writer.hpp"
#include "reproduce/time_to_render.hpp"

namespace tenon::reproduce {
namespace {

void member(JsonWriter& json, const char* key, const Bounded& b) {
  json.begin_object(key);
  json.member("value", b.value);
  json.member("censored", b.bound);
  json.end_object();
}

void member(JsonWriter& json, const char* key, const std::optional<Spread>& spread) {
  json.begin_object(key);
  json.member("runs", spread ? static_cast<std::int64_t>(spread->n) : 0);
  json.member("censored", spread ? static_cast<std::int64_t>(spread->censored) : 0);
  if (spread) {
    member(json, "median", spread->median);
    member(json, "low", spread->low);
    member(json, "high", spread->high);
  }
  json.end_object();
}

void threshold(JsonWriter& json, const char* key, const ToThreshold& to, const Size& size) {
  json.begin_object(key);
  member(json, "seconds", to.seconds);
  member(json, "faster_percent", to.gap);
  json.begin_array("runs");
  for (std::size_t s = 0; s < to.runs.size(); ++s) {
    json.begin_object();
    json.member("seed", size.seeds[s]);
    json.member("missing", !to.runs[s].has_value());
    json.member("reached", to.runs[s] && to.runs[s]->reached);
    json.member("seconds", to.runs[s] ? to.runs[s]->at.seconds : JsonWriter::kNull);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void used(JsonWriter& json, const char* key, const Used& what) {
  json.begin_object(key);
  member(json, "slots", what.steps);
  member(json, "samples_trained", what.trained);
  member(json, "samples_drawn", what.drawn);
  member(json, "bytes_sent_rank0", what.bytes);
  json.end_object();
}

void split(JsonWriter& json, const ab::TimeSplit& s) {
  json.begin_object("seconds_by_part");
  json.member("total", s.total);
  json.member("compute", s.compute);
  json.member("blocking_communication", s.exposed);
  json.member("barrier_wait", s.late);
  json.member("data", s.data);
  json.member("other", s.other);
  json.member("hidden_communication", s.overlapped);
  json.end_object();
}

}  // namespace

void time_to_json(JsonWriter& json, const StudyResult& r) {
  const TimeToResult& t = *r.time_to;
  json.begin_object("time_to");
  json.member("simulated", t.simulated);
  json.member("sign", "(baseline - arm) / baseline of the time in per cent; positive = the arm is faster");
  json.member("looser", r.study.time_to->looser);
  json.member("budget", r.study.time_to->budget);
  json.objects("links", r.study.time_to->links, [&](const TimeToLink& link) {
    json.member("name", link.name);
    json.objects("set", link.set, [&](const std::string& set) { json.member("value", set); });
  });
  json.begin_array("arms");
  for (std::size_t a = 0; a < t.arms.size(); ++a) {
    const TimeToArm& arm = t.arms[a];
    json.begin_object();
    json.member("name", r.study.arms[a].arm.name);
    json.objects("thresholds", arm.thresholds, [&](const std::optional<double>& value) {
      json.member("value", value.value_or(JsonWriter::kNull));
    });
    used(json, "to_threshold", arm.strict);
    used(json, "to_looser_threshold", arm.looser);
    member(json, "value_at_equal_samples", arm.at_equal_samples);
    json.begin_array("links");
    for (std::size_t l = 0; l < t.links.size(); ++l) {
      const TimedArm& timed = arm.links[l];
      json.begin_object();
      json.member("link", t.links[l]);
      threshold(json, "threshold", timed.strict, r.size);
      threshold(json, "looser_threshold", timed.looser, r.size);
      member(json, "value_at_equal_time", timed.at_equal_time);
      member(json, "whole_run_seconds", timed.total_seconds);
      if (timed.split) split(json, *timed.split);
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace tenon::reproduce
