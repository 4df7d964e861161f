// An observer that prints when the first step of a run had finished, on the clock that all processes of the
// machine share, the time of the steps after the warm-up, and the number of parameters: one line of JSON at
// the end of the run.
#pragma once

#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <chrono>
#include <cstdio>

namespace tenon::bench {

class StepClock final : public Observer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("warm", "1").at_least(1).doc_text("slots that are not timed")};
  static constexpr ComponentInfo kInfo{
      .id = "step_clock", .summary = "prints how long steps took", .options = kOptions};

  explicit StepClock(const Options& options) : warm_(options.integer("warm")) {}
  bool every_rank() const override { return false; }
  void on_start(const RunInfo& info) override { parameters_ = info.parameters; }
  void on_slot(const SlotRecord&) override {
    last_ = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    ++slots_;
    if (slots_ == 1) first_ = last_;
    if (slots_ == warm_) begin_ = last_;
  }
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {
    const double counted = static_cast<double>(slots_ - warm_);
    std::printf("{\"first_step_at\": %.6f, \"seconds_per_step\": %.9f, \"parameters\": %lld}\n", first_,
                counted > 0 ? (last_ - begin_) / counted : 0.0, static_cast<long long>(parameters_));
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  std::int64_t warm_, slots_ = 0, parameters_ = 0;
  double first_ = 0, begin_ = 0, last_ = 0;
};

}  // namespace tenon::bench
