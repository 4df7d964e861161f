// `tenon inspect FILE` over a good file: facts read without running its code, facts from a child process, and
// that the first do not depend on the second.
#include "run_program.hpp"
#include "support.hpp"

#include <nlohmann/json.hpp>

namespace tenon::integration {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

Ended inspect(const std::string& name, std::vector<std::string> more = {}) {
  const Scratch scratch;
  more.insert(more.begin(), {"inspect", fixture::path(name).string()});
  return scratch.run(std::move(more));
}

TEST(InspectFile, SaysWhatWasReadAndWhatTheLoadedPluginSaid) {
  const Ended ended = inspect("good/good");
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.out.rfind("acme.good 1.2.3\nfile        " + fixture::path("good/good").string() +
                                "\nabi         epoch 0, ",
                            0),
            0u)
      << ended.out;
  const std::size_t read = ended.out.find(
                        "\ncomponents  toy.counter (also called tally), toy.twin\n"
                        "This much is read from the file; no code of it ran.\n"),
                    said = ended.out.find(
                        "\nThe rest it said of itself, loaded and initialised in a child process.\n"),
                    option = ended.out.find("  rate ");
  EXPECT_LT(read, said);
  EXPECT_LT(said, option);
  EXPECT_NE(option, std::string::npos) << ended.out;
}

TEST(InspectFile, WithoutLoadingEndsWhereReadingEnds) {
  const Ended ended = inspect("good/good", {"--no-load"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, testing::EndsWith("no code of it ran.\n"));
  EXPECT_THAT(ended.out, Not(HasSubstr("rate")));
}

TEST(InspectFile, AsJson) {
  const Json whole = Json::parse(inspect("good/good", {"--json"}).out);
  EXPECT_EQ(whole["plugin"], "acme.good");
  EXPECT_EQ(whole["loaded"], true);
  EXPECT_EQ(whole["abi"]["string-abi"], plugin::host_abi_tag().string_abi);
  EXPECT_EQ(whole["components"][0]["options"][1]["name"], "rate");
  const Json tag = Json::parse(inspect("good/good", {"--json", "--no-load"}).out);
  EXPECT_EQ(tag["loaded"], false);
  EXPECT_EQ(tag["abi"], whole["abi"]);
  EXPECT_EQ(tag["components"][0], (Json{{"kind", "toy/1"}, {"id", "counter"}, {"aliases", {"tally"}}}));
  // A file that cannot be loaded is shown with the reason and its readable part.
  const Ended broken = inspect("bad/new_epoch", {"--json"});
  EXPECT_EQ(broken.status, 3);
  const Json bad = Json::parse(broken.out);
  EXPECT_EQ(bad["plugin"], "bad.new_epoch");
  EXPECT_EQ(bad["abi"]["epoch"], "4095");
  EXPECT_EQ("tenon: " + bad["reason"].get<std::string>() + "\n", broken.err);
}

TEST(InspectFile, AsMarkdown) {
  const std::string page = inspect("good/good", {"--markdown"}).out;
  EXPECT_EQ(page.rfind("## acme.good 1.2.3: a plugin as it should be\n\n### toy.counter\n", 0), 0u) << page;
  EXPECT_THAT(page, HasSubstr("| `rate` | number | `1e-3` | >= 0 1/step |"));
  const std::string tag = inspect("good/good", {"--markdown", "--no-load"}).out;
  EXPECT_THAT(tag, testing::StartsWith("## acme.good 1.2.3\n\nabi: epoch 0, "));
  EXPECT_THAT(tag, testing::EndsWith("\n\n- toy.counter (also called tally)\n- toy.twin\n"));
}

TEST(Doctor, NamesWhatIsOffAndEndsWithStatusThree) {
  const Scratch scratch;
  const std::string bad = std::string(FIXTURES) + "/bad/";
  const Ended ended = scratch.run(
      {"doctor"}, {{"TENON_PLUGIN_PATH", bad + "crashes_in_static.so:" + bad + "exits_in_init.so:" + bad +
                                             "glibcxx_debug.so:" + FIXTURES + "/good/good.so"}});
  EXPECT_EQ(ended.status, 3);
  EXPECT_THAT(ended.out, HasSubstr("off        bad.crashes_in_static\n"));
  EXPECT_THAT(ended.out, HasSubstr("loading it ended the process with signal 11 (Segmentation fault)."));
  EXPECT_THAT(ended.out, HasSubstr("its init ended the process with exit status 9."));
  EXPECT_THAT(ended.out, HasSubstr("built for debug-containers on, this program has debug-containers off"));
  EXPECT_THAT(ended.out, HasSubstr("ok         acme.good 1.2.3 (2 components)\n"));
}

}  // namespace
}  // namespace tenon::integration
