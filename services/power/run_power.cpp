#include "power/run_power.hpp"

#include "base/json_writer.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

namespace tenon::train {
namespace {

[[noreturn]] void refuse(const config::CheckedComponent& checked, std::string_view why) {
  const std::string place = checked.type_origin.file.empty() ? "" : checked.type_origin.text() + ": ";
  fail_config(fmt::format("{}[{}] type = \"{}\": {}", place, checked.table, checked.type, why));
}

}  // namespace

RunPower::RunPower(World& world, int rank, Parts& parts, RankHost& host)
    : world_(world), rank_(rank), parts_(parts), host_(host) {
  for (config::CheckedComponent& checked : parts.checked) {
    if (checked.kind != Power::kKind) continue;
    if (world.clock->simulated())
      refuse(
          checked,
          "the clock of this run is simulated, and sensors and fillers live in real time; record a timeline "
          "([[observe]] type = \"trace\") and give it to tenon power");
    if (checked.table == "power.source") {
      make_source(checked);
    } else {
      make_actuator(checked);
    }
  }
}

RunPower::~RunPower() {
  end();
}

void RunPower::make_source(const config::CheckedComponent& checked) {
  auto made = std::make_shared<SourceComponent>();
  config::CheckedComponent own = checked.copy();
  made->options = std::move(own.options);
  world_.registry.create_inner(*made->options, host_);
  made->component = world_.registry.create<Power>(checked.type, *made->options, host_);
  const ComponentRef& ref = made->component.handle().ref();
  source_names_ = {ref.plugin, ref.name, rank_, -1, made->options.get()};
  const bool wanted = guard(source_names_, [&] {
    made->source = static_cast<PowerSource*>(made->component->query(PowerSource::kId));
    made->phases = static_cast<PhaseObserver*>(made->component->query(PhaseObserver::kId));
    return made->source != nullptr && (rank_ == 0 || made->source->every_rank());
  });
  if (made->source == nullptr)
    refuse(checked, "this component of kind power reads no power (it is no PowerSource)");
  if (wanted) source_ = std::move(made);
}

int RunPower::local_rank() const {
  return rank_ % world_.ranks_here();
}

PowerPlace RunPower::place() const {
  return {local_rank(), world_.threads_per_rank(), parts_.device.get(), &host_};
}

/// Its options stay with those of the rank's other parts.
void RunPower::make_actuator(config::CheckedComponent& checked) {
  ResolvedOptions& options = *checked.options;
  world_.registry.create_inner(options, host_);
  Actuator made{{&options, world_.registry.create<Power>(checked.type, options, host_), nullptr, host_}};
  made.role = made.component.offered<PowerActuator>();
  made.phases = made.component.offered<PhaseObserver>();
  if (made.role == nullptr)
    refuse(checked, "this component of kind power draws none in a run (it is no PowerActuator)");
  try {
    made.component.guarded(*made.role)->prepare(place());
  } catch (...) {
    rethrow_noted_call();  // while `made` lives, whose options an error may name
  }
  actuator_ = std::move(made);
}

/// A call of the actuator. Returns false, and gives the actuator up, where it throws.
template <typename Call>
bool RunPower::drive(Call&& body) {
  if (!actuator_ || !actuator_->ended.empty()) return false;
  try {
    try {
      body();
    } catch (...) {
      rethrow_noted_call();
    }
  } catch (const std::exception& error) {
    actuator_->ended = error.what();
    say("actuator", error.what());
    return false;
  }
  return true;
}

void RunPower::say(std::string_view what, std::string_view why) {
  const std::string text = fmt::format("power {} ends; training goes on without it: {}", what, why);
  host_.log(LogLevel::kWarning, text);
  if (host_.spec().log != nullptr) std::fprintf(stderr, "tenon: warning: %s\n", text.c_str());
}

void RunPower::begin(TimeAccount& account, const std::string& folder, std::int64_t first_slot) {
  stem_ = fmt::format("{}/power.rank{}", folder, rank_);
  if (first_slot > 0) stem_ += fmt::format(".slot{}", first_slot);
  readings_.reset();
  if (source_ != nullptr) {
    PowerSampler::Spec spec;
    spec.source = source_;
    spec.local_rank = local_rank();
    spec.rate_hz = world_.settings.power.rate_hz;
    spec.clock = world_.clock.get();
    spec.path = stem_ + ".csv";
    spec.report = [this](const std::string& why) { say("source", why); };
    sampler_ = std::make_unique<PowerSampler>(std::move(spec));
    sampler_->begin();
  }
  drive([&] { actuator_->component.guarded(*actuator_->role)->start(place()); });
  const bool hears =
      (source_ != nullptr && source_->phases != nullptr) || (actuator_ && actuator_->phases != nullptr);
  if (hears) account.listen(*this);
  account_ = &account;
}

void RunPower::end() noexcept {
  if (account_ == nullptr) return;
  account_ = nullptr;
  drive([&] { actuator_->component.guarded(*actuator_->role)->stop(); });
  try {
    if (sampler_ != nullptr) readings_ = sampler_->end();
    sampler_.reset();
    if (readings_ || actuator_) world_.files->write_text_atomically(stem_ + ".json", record());
  } catch (const std::exception& error) {
    say("record", error.what());
  }
}

// The source's hook is called from the training thread and must not end the source's own thread: what it
// throws is reported, and it hears no more.
void RunPower::on_phase(Phase phase, double at_s) {
  drive([&] {
    if (actuator_->phases != nullptr) actuator_->component.guarded(*actuator_->phases)->on_phase(phase, at_s);
  });
  if (source_ == nullptr || source_->phases == nullptr) return;
  try {
    guard(source_names_, [&] { source_->phases->on_phase(phase, at_s); });
  } catch (const std::exception& error) {
    source_->phases = nullptr;
    say("source's listener for phases", error.what());
  }
}

void RunPower::metrics(const std::function<void(std::string_view, double)>& sink) const {
  if (!readings_ || !readings_->info || readings_->rows == 0) return;
  const bool watts = readings_->info->unit == PowerUnit::kWatts;
  const std::string origin = readings_->info->origin == PowerOrigin::kMeasured ? "" : "modelled_";
  sink(fmt::format("power/{}{}", origin, watts ? "watts" : "share"), readings_->mean());
  if (watts) sink(fmt::format("power/{}joules", origin), readings_->joules());
}

std::string RunPower::record() {
  std::vector<std::pair<std::string, double>> account;
  drive([&] {
    actuator_->component.guarded(*actuator_->role)->account([&](std::string_view name, double value) {
      account.emplace_back(name, value);
    });
  });
  JsonWriter json;
  json.begin_object();
  json.member("rank", rank_);
  if (readings_) {
    const PowerReadings& r = *readings_;
    json.begin_object("source");
    json.member("type", source_->component.id());
    json.member("ended", r.ended);
    if (r.info) {
      json.member("sensor", r.info->sensor);
      json.member("origin", power_origin_name(r.info->origin));
      json.member("unit", power_unit_name(r.info->unit));
      json.member("rated", r.info->rated > 0 ? r.info->rated : JsonWriter::kNull);
    }
    json.member("rate_hz", r.rate_hz);
    json.member("rows", r.rows);
    if (r.rows > 0) {
      json.member("held_rows", r.held);
      json.member("seconds", r.seconds());
      json.member("update_hz", r.update_hz());
      json.member("mean", r.mean());
      json.member("lowest", r.lowest);
      json.member("highest", r.highest);
    }
    if (r.info && r.info->unit == PowerUnit::kWatts) {
      json.member("joules", r.joules());
      json.member("counted_joules", r.counted_j);
    }
    json.end_object();
  }
  if (actuator_) {
    json.begin_object("actuator");
    json.member("type", actuator_->component.id());
    json.member("ended", actuator_->ended);
    json.begin_object("account");
    for (const auto& [name, value] : account) json.member(name, value);
    json.end_object();
    json.end_object();
  }
  json.end_object();
  return json.take();
}

}  // namespace tenon::train
