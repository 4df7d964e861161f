// Rewards that are wrong in one way each.
#include <tenon/plugin.hpp>
#include <tenon/reward.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using namespace tenon;

class Base : public Reward {
 public:
  explicit Base(const Options&) {}
  void* query(std::string_view) override { return nullptr; }
};

class LikesTheLastLess final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "likes_the_last_less", .summary = "half of the last score"};
  using Base::Base;
  void score(const RewardSample&, RewardParts& parts) const override { parts.add("liking", last_ *= 0.5); }

 private:
  mutable double last_ = 1;
};

class SharesItsScratch final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "shares_its_scratch", .summary = "one count for all threads"};
  using Base::Base;
  void score(const RewardSample& given, RewardParts& parts) const override {
    count_ = 0;
    for (const char c : given.answer.substr(0, 500)) count_ += c == '4' ? 1 : 0;
    std::this_thread::sleep_for(std::chrono::microseconds(20));  // lets the others in, on one core too
    parts.add("fours", count_);
  }

 private:
  mutable std::atomic<int> count_ = 0;
};

class DividesByTheLength final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "divides_by_the_length", .summary = "no number for no text"};
  using Base::Base;
  void score(const RewardSample& given, RewardParts& parts) const override {
    parts.add("density", 1.0 / static_cast<double>(given.answer.size()));
  }
};

class PraisesTheRightAlone final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "praises_the_right_alone", .summary = "a part now and then"};
  using Base::Base;
  void score(const RewardSample& given, RewardParts& parts) const override {
    parts.add("effort", 1);
    if (given.answer == "42") parts.add("right", 1);
  }
};

class CountsTwice final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_twice", .summary = "one name for two parts"};
  using Base::Base;
  void score(const RewardSample&, RewardParts& parts) const override {
    parts.add("length", 1);
    parts.add("length", 1);
  }
};

class TrustsTheSample final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "trusts_the_sample", .summary = "takes a field for granted"};
  using Base::Base;
  void score(const RewardSample& given, RewardParts& parts) const override {
    const Value* const field = given.sample == nullptr ? nullptr : given.sample->find("answer");
    if (field == nullptr) throw std::out_of_range("answer");
    parts.add("right", given.answer == "42" ? 1 : 0);
  }
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.reward", .version = "1.0.0", .summary = "wrong rewards"},
             LikesTheLastLess, SharesItsScratch, DividesByTheLength, PraisesTheRightAlone, CountsTwice,
             TrustsTheSample)
