// Writing recovery.jsonl, and reading back what an earlier segment was charged.
#include "record/recovery_log.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace tenon {
namespace {

using Line = nlohmann::ordered_json;

constexpr double kHour = 3600;
constexpr std::int64_t kLargestLog = std::int64_t{1} << 30;

const char* status_name(SaveStatus status) {
  switch (status) {
    case SaveStatus::kCommitted:
      return "committed";
    case SaveStatus::kSkipped:
      return "skipped";
    case SaveStatus::kAborted:
      break;
  }
  return "aborted";
}

Line charged(const EmulatedCharges& charges) {
  return {{"save_hours", charges.save},
          {"load_hours", charges.load},
          {"restart_hours", charges.restart},
          {"repeat_hours", charges.repeat}};
}

}  // namespace

RecoveryLog::RecoveryLog(FileSystem& files, const std::string& folder,
                         const std::optional<ClusterCosts>& costs, double hours_per_slot)
    : files_(files), path_(folder + "/recovery.jsonl"), costs_(costs), hours_per_slot_(hours_per_slot) {
  if (files_.exists(path_)) read_back();
}

void RecoveryLog::read_back() {
  const std::string text = read_text(files_, path_, kLargestLog);
  std::size_t good = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const Line line = Line::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                  text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!line.is_object()) break;
    const auto number = [](const Line& object, const char* key) {
      const auto found = object.find(key);
      return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
    };
    if (const auto charges = line.find("charged"); charges != line.end() && charges->is_object()) {
      charges_.save += number(*charges, "save_hours");
      charges_.load += number(*charges, "load_hours");
      charges_.restart += number(*charges, "restart_hours");
      charges_.repeat += number(*charges, "repeat_hours");
    }
    if (line.value("event", "") == "save" && line.value("complete", false) && !line.value("encoded", false))
      complete_bytes_ = static_cast<std::int64_t>(number(line, "bytes"));
    const auto text_of = [&](const char* key) {
      const auto found = line.find(key);
      return found != line.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    if (text_of("event") == "fallback" && !line.contains("because"))
      fallbacks_.push_back(
          {static_cast<std::int64_t>(number(line, "slot")), text_of("reason"), text_of("path")});
    begin = good = end + 1;
  }
  if (good < text.size()) files_.truncate(path_, static_cast<std::int64_t>(good));
}

void RecoveryLog::write(const std::string& line, bool durably) {
  const auto file = files_.append_to(path_);
  const std::string whole = line + "\n";
  file->append(std::as_bytes(std::span(whole)));
  if (durably) file->sync();
  file->close();
}

void RecoveryLog::saved(const SavedEvent& event, const SaveResult& result) {
  const bool committed = result.status == SaveStatus::kCommitted;
  if (committed && event.complete && !event.encoded) complete_bytes_ = result.all_bytes;
  Line line = {{"event", "save"},
               {"slot", event.slot},
               {"samples", event.samples},
               {"status", status_name(result.status)},
               {"complete", event.complete},
               {"consistent", event.consistent},
               {"encoded", event.encoded},
               {"base_slot", event.base_slot},
               {"bytes", result.all_bytes},
               {"stall_s", event.stall_s},
               {"copy_s", result.copy_s},
               {"write_s", result.write_s},
               {"commit_s", result.commit_s}};
  if (!committed) line["bytes"] = 0;
  if (!event.place.empty()) line["place"] = event.place;
  if (!result.error.empty()) line["error"] = result.error;
  if (costs_ && committed) {
    EmulatedCharges charge;
    const std::int64_t complete = complete_bytes_ > 0 ? complete_bytes_ : event.plain_bytes;
    const double share =
        complete > 0 ? static_cast<double>(result.all_bytes) / static_cast<double>(complete) : 1.0;
    if (!event.free) charge.save = costs_->save_s / kHour * share;
    charges_.save += charge.save;
    line["share_of_complete"] = share;
    line["charged"] = charged(charge);
  }
  write(line.dump());
}

void RecoveryLog::failed(const FailedEvent& event, std::int64_t repeated) {
  Line line = {{"event", "failure"},
               {"index", event.index},
               {"hour", event.hour},
               {"slot", event.slot},
               {"samples", event.samples},
               {"shards", event.shards},
               {"action", event.action},
               {"from_slot", event.from_slot},
               {"from_samples", event.from_samples},
               {"lost_samples", event.samples - event.from_samples},
               {"repeated_slots", repeated},
               {"rows", event.rows},
               {"bytes_read", event.bytes_read},
               {"seconds", event.seconds},
               {"lost_access_share", event.lost_access_share}};
  if (!event.dead.empty()) {
    line["dead"] = event.dead;
    line["restore_s"] = event.restore_s;
  }
  for (const auto& [name, value] : event.account) line["account"][name] = value;
  if (costs_) {
    const EmulatedCharges charge{0, costs_->load_s / kHour, costs_->restart_s / kHour,
                                 static_cast<double>(repeated) * hours_per_slot_};
    charges_.load += charge.load;
    charges_.restart += charge.restart;
    charges_.repeat += charge.repeat;
    line["charged"] = charged(charge);
  }
  write(line.dump());
}

void RecoveryLog::fell_back(const RejectedGeneration& bad, std::int64_t to) {
  Line line = {{"event", "fallback"},
               {"slot", bad.step},
               {"to_slot", std::max<std::int64_t>(0, to)},
               {"reason", bad.reason},
               {"path", bad.path}};
  if (bad.because >= 0) {
    line["because"] = bad.because;
  } else {
    fallbacks_.push_back({bad.step, bad.reason, bad.path});
  }
  write(line.dump(-1, ' ', false, Line::error_handler_t::replace), true);
}

void RecoveryLog::resumed(std::int64_t slot, std::int64_t samples, bool consistent,
                          const std::map<std::string, double>& account) {
  Line line = {{"event", "resume"}, {"slot", slot}, {"samples", samples}, {"consistent", consistent}};
  for (const auto& [name, value] : account) line["account"][name] = value;
  write(line.dump());
}

void RecoveryLog::ended(const std::string& status, std::int64_t slots,
                        const std::vector<double>& access_shares,
                        const std::map<std::string, double>& account,
                        const std::map<std::string, double>& wall) {
  Line line = {{"event", "end"}, {"status", status}, {"slot", slots}};
  if (!access_shares.empty()) line["access_shares"] = access_shares;
  for (const auto& [name, value] : wall) line["wall"][name] = value;
  for (const auto& [name, value] : account) line["account"][name] = value;
  if (costs_) {
    const double hours = static_cast<double>(slots) * hours_per_slot_;
    line["productive_hours"] = hours;
    line["total"] = charged(charges_);
    line["overhead_percent"] = 100 * charges_.total() / hours;
  }
  write(line.dump());
}

}  // namespace tenon
