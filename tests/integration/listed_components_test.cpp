// A run with a list of inner components, [[schedule.part]]: what its file becomes, its bits, a resume, and
// refusals with their places.
#include "run_program.hpp"

namespace tenon::integration::listed_components_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTwoCosines =
    "\n[schedule]\ntype = \"mean_of\"\n[[schedule.part]]\ntype = \"cosine\"\nwarmup = 2\nsteps = "
    "6\n[[schedule.part]]\n"
    "type = \"mean_of\"\npart = [{type = \"cosine\", warmup = 2, steps = 6}]\n";

class ListedComponents : public ::testing::Test {
 protected:
  Ended train(const std::string& schedule, std::vector<std::string> more = {}) const {
    write_file(scratch_ / "run.toml", Scratch::kRun + schedule);
    return scratch_.train(std::move(more), {{"TENON_PLUGIN_PATH", TENON_LISTED}});
  }
  const Scratch scratch_;
};

// (x + x) / 2 is x to the bit.
TEST_F(ListedComponents, GiveTheBitsOfWhatTheyAreMadeOf) {
  ASSERT_EQ(train("\n[schedule]\ntype = \"cosine\"\nwarmup = 2\n").status, 0);
  const std::string alone = scratch_.summary("weights_hash");
  const Ended ended = train(kTwoCosines);
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(scratch_.summary("weights_hash"), alone);
  ASSERT_EQ(train(kTwoCosines, {"--set", "schedule.part=[{type='constant'}, {type='cosine'}]"}).status, 0);
  EXPECT_NE(scratch_.summary("weights_hash"), alone);
}

TEST_F(ListedComponents, AreRecordedWithTheirDefaultsAndResume) {
  ASSERT_EQ(train(kTwoCosines).status, 0);
  const std::string whole = scratch_.summary("weights_hash");
  EXPECT_THAT(read_file(scratch_ / "runs/tiny/latest/config.resolved.toml"),
              ::testing::ContainsRegex(
                  "\\[\\[schedule\\.part\\]\\].*\ntype = \"cosine\".*\nwarmup = 2.*\nmin_lr = 0"));
  ASSERT_EQ(train(kTwoCosines, {"--set", "run.name=stopped", "--set", "run.steps=4"}).status, 0);
  const Ended resumed = train(kTwoCosines, {"--set", "run.name=stopped", "--resume"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(read_file(scratch_ / "runs/stopped/latest/summary.json"), HasSubstr(whole));
}

TEST_F(ListedComponents, AreRefusedWithTheirPlaces) {
  const std::string begin = "\n[schedule]\ntype = \"mean_of\"\n";
  const std::pair<std::string, const char*> cases[] = {
      {begin,
       "needs option 'part': an array of tables, each with its own 'type', schedules whose mean it is"},
      {begin + "[[schedule.part]]\ntype = \"cosine\"\n[[schedule.part]]\ntype = \"cosin\"\n",
       "run.toml:36:8: there is no schedule.cosin"},
      {begin + "[[schedule.part]]\ntype = \"cosine\"\n[[schedule.part]]\ntype = \"cosine\"\nwarmpu = 2\n",
       "run.toml:37:1: schedule.cosine has no option 'warmpu'; did you mean 'warmup'?"},
      {begin + "[schedule.part]\ntype = \"cosine\"\n", "expected an array of tables, [[...part]] for each"},
  };
  for (const auto& [text, message] : cases) {
    const Ended ended = train(text);
    EXPECT_EQ(ended.status, 2) << text;
    EXPECT_THAT(ended.err, HasSubstr(message));
  }
}

}  // namespace
}  // namespace tenon::integration::listed_components_test
