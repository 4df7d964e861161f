// Rehearses the two kinds that surround text outside of the model: a tokenizer with merged pairs, and a
// reward that reads answers as text or as ids.
#include "support.hpp"

#include <tenon/registry.hpp>
#include <tenon/reward.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/tokenizer.hpp>

#include <gmock/gmock.h>

#include <random>
#include <set>

namespace rehearsal::text_parts_test {
namespace {

using namespace tenon;

/// Bytes, then pairs of bytes, then the end of a text. Takes a pair wherever one begins.
class Pairs final : public Tokenizer {
 public:
  static constexpr OptionSpec kOptions[] = {option::texts("pairs", nullptr).mandatory()};
  static constexpr ComponentInfo kInfo{
      .id = "pairs", .summary = "bytes and pairs of them", .options = kOptions};
  explicit Pairs(const Options& options) {
    for (const std::string_view pair : options.texts("pairs")) pairs_.emplace_back(pair);
  }
  std::int64_t vocabulary() const override { return 256 + static_cast<std::int64_t>(pairs_.size()) + 1; }
  std::int32_t end_of_text() const override { return static_cast<std::int32_t>(vocabulary() - 1); }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    while (!text.empty()) {
      const auto pair = std::find(pairs_.begin(), pairs_.end(), text.substr(0, 2));
      if (pair != pairs_.end()) {
        ids.push_back(256 + static_cast<std::int32_t>(pair - pairs_.begin()));
        text.remove_prefix(2);
      } else {
        ids.push_back(static_cast<unsigned char>(text[0]));
        text.remove_prefix(1);
      }
    }
    return ids;
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= vocabulary())
        fail_run("tokenizer pairs: id " + std::to_string(id) + " is not one of the vocabulary's " +
                 std::to_string(vocabulary()));
      if (id < 256)
        text += static_cast<char>(id);
      else if (id != end_of_text())
        text += pairs_[static_cast<std::size_t>(id - 256)];
    }
    return text;
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  std::vector<std::string> pairs_;
};

/// Minus the distance of an answer's length to that of its prompt; in ids where they are known.
class SameLength final : public Reward {
 public:
  static constexpr ComponentInfo kInfo{.id = "same_length", .summary = "answers as long as their prompts"};
  explicit SameLength(const Options&) {}
  void score(std::span<const RewardSample> samples, std::span<double> out) override {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const RewardSample& sample = samples[i];
      const bool ids = !sample.prompt_ids.empty() && !sample.answer_ids.empty();
      if (!ids && sample.prompt.empty())
        fail_run("reward same_length: sample " + std::to_string(i) + " has no prompt");
      const auto length = [&](std::string_view text, std::span<const std::int32_t> of) {
        return static_cast<double>(ids ? of.size() : text.size());
      };
      out[i] = -std::abs(length(sample.prompt, sample.prompt_ids) - length(sample.answer, sample.answer_ids));
    }
  }
  void* query(std::string_view) override { return nullptr; }
};

TENON_STATIC_PLUGIN(plugin,
                    PluginInfo{.id = "rehearsal.text_parts", .version = "1.0.0", .summary = "around text"},
                    Pairs, SameLength)

template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class TextParts : public ::testing::Test {
 protected:
  void SetUp() override { registry_.add_builtin(plugin); }
  Registry registry_;
  tenon::testing::QuietHost host_;
};

TEST_F(TextParts, ATokenizerGivesBackEveryText) {
  const auto tokenizer =
      tenon::testing::make<Tokenizer>(registry_, host_, "pairs", "pairs = ['th', 'e ', 'an']");
  ASSERT_EQ(tokenizer->vocabulary(), 260);
  EXPECT_EQ(tokenizer->encode("the than"), (std::vector<std::int32_t>{256, 257, 256, 258}));
  std::mt19937 random(9);
  std::set<std::int32_t> seen;
  for (int i = 0; i < 300; ++i) {
    std::string text;
    const std::size_t length = random() % 40;
    while (text.size() < length)
      text += i % 2 == 0 ? static_cast<char>(random() % 256) : "the an"[random() % 6];
    const auto ids = tokenizer->encode(text);
    EXPECT_EQ(tokenizer->decode(ids), text);
    seen.insert(ids.begin(), ids.end());
    // Texts one after another: the id between them is no byte of either.
    auto both = ids;
    both.push_back(tokenizer->end_of_text());
    both.insert(both.end(), ids.begin(), ids.end());
    EXPECT_EQ(tokenizer->decode(both), text + text);
  }
  EXPECT_EQ(seen.size(), 259U) << "all but the end of a text";
  EXPECT_FALSE(seen.contains(tokenizer->end_of_text()));
  const std::int32_t beyond[] = {260};
  EXPECT_THAT(refusal([&] { tokenizer->decode(beyond); }),
              ::testing::HasSubstr("id 260 is not one of the vocabulary's 260"));
}

TEST_F(TextParts, ARewardScoresEachSampleAlone) {
  const auto tokenizer =
      tenon::testing::make<Tokenizer>(registry_, host_, "pairs", "pairs = ['th', 'e ', 'an']");
  const auto reward = tenon::testing::make<Reward>(registry_, host_, "same_length", "");
  const std::string prompts[] = {"the", "an answer", "x"}, answers[] = {"the", "than", "the other"};
  std::vector<std::vector<std::int32_t>> ids;
  for (const auto* texts : {prompts, answers})
    for (int i = 0; i < 3; ++i) ids.push_back(tokenizer->encode(texts[i]));
  std::vector<RewardSample> as_text, as_ids;
  for (int i = 0; i < 3; ++i) {
    as_text.push_back({prompts[i], answers[i]});
    as_ids.push_back({"", "", ids[i], ids[3 + i]});
  }
  std::vector<double> whole(3), of_ids(3), single(3);
  reward->score(as_text, whole);
  EXPECT_EQ(whole, (std::vector<double>{0, -5, -8}));
  for (std::size_t i = 0; i < 3; ++i) reward->score({&as_text[i], 1}, {&single[i], 1});
  EXPECT_EQ(single, whole);
  reward->score(as_ids, of_ids);
  EXPECT_EQ(of_ids, (std::vector<double>{0, -5, -5})) << "ids: 2 and 2, 7 and 2, 1 and 6";
  const RewardSample nothing{"", "answer"};
  EXPECT_THAT(refusal([&] {
                reward->score({&nothing, 1}, {whole.data(), 1});
              }),
              ::testing::HasSubstr("sample 0 has no prompt"));
}

}  // namespace
}  // namespace rehearsal::text_parts_test
