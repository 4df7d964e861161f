// Rehearses a policy of an outside author that keeps checkpoints in two places beside the run's folder: where
// its saves go, which of them a roll-back reads, and answers that no store can be made of.
#include "support.hpp"

#include <tenon/files.hpp>
#include <tenon/recovery.hpp>
#include <tenon/save_places.hpp>

#include <gmock/gmock.h>

namespace rehearsal::save_places_test {
namespace {

using namespace tenon;
using ::testing::HasSubstr;

/// Saves slot 2 in the run's folder, 4 in the first place and 6 in the second; goes back once, before slot 7.
class Placer final : public RecoveryBase, public SavePlaces {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("folder", "\"\""), option::integer("keep_in_first", "2"),
      option::integer("keep", "2"),   option::integer("place", "-2"),
      option::integer("from", "-3"),  option::boolean("increments", "false")};
  static constexpr ComponentInfo kInfo{.id = "placer", .summary = "several places", .options = kOptions};
  explicit Placer(const Options& options)
      : folder_(options.text("folder")),
        first_(folder_.empty() ? "" : folder_ + "/first"),
        second_(folder_ + "/second"),
        places_{{"first", first_, static_cast<int>(options.integer("keep_in_first"))},
                {"second", second_, 2}},
        keep_(static_cast<int>(options.integer("keep"))),
        place_(options.integer("place")),
        from_(options.integer("from")),
        increments_(options.boolean("increments")) {}

  void start(const RecoveryStart& start) override { gone_back_ = start.roll_backs > 0; }
  BoundaryPlan plan_boundary(const SaveMoment& moment) override {
    BoundaryPlan plan;
    plan.rolls_back = from_ > -3 && moment.slot == 7 && !gone_back_;
    plan.from_slot = from_;
    plan.reason = "once";
    return plan;
  }
  SavePlan plan_save(const SaveMoment& moment) override {
    SavePlan plan;
    plan.save = moment.slot == 2 || moment.slot == 4 || moment.slot == 6;
    plan.background = false;
    if (increments_) {
      plan.everything = false;
      plan.base_slot = kNewestBase;
    }
    return plan;
  }
  int keep() const override { return keep_; }
  void* query(std::string_view id) override {
    return id == SavePlaces::kId ? static_cast<SavePlaces*>(this) : nullptr;
  }
  std::span<const SavePlace> places() const override { return places_; }
  int place(const SaveMoment& moment) const override {
    if (place_ != -2) return static_cast<int>(place_);
    return static_cast<int>(moment.slot / 2) - 2;
  }

 private:
  std::string folder_, first_, second_;
  SavePlace places_[2];
  int keep_;
  std::int64_t place_, from_;
  bool increments_, gone_back_ = false;
};

TENON_STATIC_PLUGIN(plugin,
                    PluginInfo{.id = "rehearsal.placer", .version = "1.0.0", .summary = "several places"},
                    Placer)

std::vector<std::string> sets(const Folder& folder, const std::string& more, int ranks = 1) {
  return {"recovery={type='placer', folder='" + folder.path + "/beside'" + more + "}", "run.steps=8",
          "parallel.ranks=" + std::to_string(ranks), "transport={type='thread'}", "sync={type='ddp'}"};
}

TEST(SavePlaces, ARollBackReadsTheNewestOfAllPlacesOrTheSlotThatThePolicyNames) {
  for (const int ranks : {1, 2}) {
    const Folder folder;
    const RunResult whole = train(plugin, "", sets(folder, "", ranks), folder, "whole");
    const auto files = make_posix_files();
    for (const int from : {-1, 2, 4, 6}) {
      const std::string run = "from" + std::to_string(from + 1);
      const RunResult result =
          train(plugin, "", sets(folder, ", from=" + std::to_string(from), ranks), folder, run);
      EXPECT_EQ(result.weights_hash, whole.weights_hash) << from;
      const std::string log = read_text(*files, folder.path + "/" + run + "/1/recovery.jsonl", 1 << 20);
      EXPECT_THAT(
          log, HasSubstr("\"action\":\"once\",\"from_slot\":" + std::to_string(from < 0 ? 6 : from) + ","));
      EXPECT_THAT(log, HasSubstr("\"place\":\"first\""));
      EXPECT_THAT(log, HasSubstr("\"place\":\"second\""));
    }
  }
}

TEST(SavePlaces, WhatGoesToAnotherPlaceIsCompleteWhateverThePolicyPlans) {
  const Folder folder;
  train(plugin, "", sets(folder, ", increments=true"), folder, "run");
  const auto files = make_posix_files();
  const std::string log = read_text(*files, folder.path + "/run/1/recovery.jsonl", 1 << 20);
  EXPECT_EQ(log.find("\"complete\":false"), std::string::npos) << log;
}

TEST(SavePlaces, AnswersThatNoStoreCanBeMadeOfAreRefusedByName) {
  struct Case {
    const char* options;
    const char* said;
  };
  for (const Case& each : {
           Case{", keep_in_first=1", "recovery 'placer' keeps 1 checkpoints in place 'first', folder '"},
           Case{", folder=''",
                "recovery 'placer' keeps 2 checkpoints in place 'first', folder ''; a place has a name "
                "and a folder, and keeps at least 2"},
           Case{", keep=0",
                "recovery 'placer' keeps checkpoints in place 'first' and none in the run's folder"},
           Case{", place=2",
                "recovery 'placer' saves slot 2 in place 2; it has 2 beside the run's folder, which is -1"},
           Case{", place=-3", "recovery 'placer' saves slot 2 in place -3; it has 2"},
       }) {
    const Folder folder;
    std::string said;
    std::vector<std::string> all = sets(folder, "");
    all[0] = std::string("recovery={type='placer'") +
             (std::string_view(each.options).find("folder") == std::string_view::npos
                  ? ", folder='" + folder.path + "/beside'"
                  : "") +
             each.options + "}";
    try {
      said = try_train(plugin, "", all, folder, "run", false).error;
    } catch (const Error& error) {
      said = error.what();
    }
    EXPECT_THAT(said, HasSubstr(each.said)) << each.options;
  }
}

}  // namespace
}  // namespace rehearsal::save_places_test
