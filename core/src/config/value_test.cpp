// Values, dotted keys, the writer and its round trip, flat keys, differences, suggestions, data paths.
#include "config/data_path.hpp"
#include "config/words.hpp"
#include "test_paths.hpp"

#include <tenon/config.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <unistd.h>

TENON_ABI_BEGIN
namespace config {
namespace {

Config parsed(std::string_view text) {
  return Config::parse(text, "x.toml", {});
}

std::string message_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "no error";
}

TEST(Value, KnowsItsPlace) {
  const Config config = parsed("a = 1\n[t]\n  b = [\"x\",\n  2.5]\n[[list]]\nc = true\n");
  EXPECT_EQ(config.find("a")->origin.text(), "x.toml:1:5");
  EXPECT_EQ(config.find("t.b[1]")->origin.text(), "x.toml:4:3");
  EXPECT_EQ(config.root().find("t")->find_member("b")->origin.text(), "x.toml:3:3");
  EXPECT_EQ(config.find("list[0].c")->origin.text(), "x.toml:6:5");
  EXPECT_EQ(config.find("list[1]"), nullptr);
  EXPECT_EQ(config.find("a.b"), nullptr);
}

TEST(Value, RefusesAnotherType) {
  const Config config = parsed("text = \"fast\"\nwhole = 3\n");
  EXPECT_EQ(message_of([&] { config.find("text")->real(); }),
            "x.toml:1:8: expected a number, found the string \"fast\"");
  EXPECT_EQ(message_of([&] { config.find("whole")->table(); }),
            "x.toml:2:9: expected a table, found the whole number 3");
  EXPECT_EQ(config.find("whole")->real(), 3.0);
}

TEST(Value, ComparesDataOnly) {
  EXPECT_EQ(parsed("a = 1\nb = [nan, {x = 2}]").root(),
            Config::parse("b = [nan, {x = 2}]\n\na = 1", "y", {}).root());
  EXPECT_FALSE(parsed("a = 1").root() == parsed("a = 1.0").root());
  EXPECT_FALSE(parsed("a = 1").root() == parsed("a = 1\nb = 2").root());
}

TEST(Toml, ReportsSyntaxWithPlace) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"[run]\nsteps = = 3\n", "x.toml:2:9: Error while parsing "},
      {"[run]\nsteps = 1\nsteps = 2\n", "x.toml:3:"},
      {"a = \"open\n", "x.toml:1:"},
      {"day = 2024-01-01\n", "x.toml:1:7: dates and times are not used here; write a string in quotes"},
      {"[t]\nat = [07:32:00]\n", "x.toml:2:7: dates and times are not used here"},
      {"a = \"\xff\"\n", "x.toml:1:"},
      {"a = 1\n  [[=]]\n", "x.toml:2:5: Error while parsing table header: expected a key"},
      {"day = 1", "no error"},
  };
  for (const auto& test : cases) {
    EXPECT_THAT(message_of([&] { parsed(test.text); }), testing::StartsWith(test.message)) << test.text;
  }
}

TEST(Toml, LimitsDepth) {
  const auto repeated = [](const char* unit, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += unit;
    return out;
  };
  const std::string deep = repeated("a.", 100000) + "a = 1\n";
  EXPECT_EQ(message_of([&] { parsed("b = 1\n" + deep); }), "x.toml:2:1: a key has more than 64 parts");
  EXPECT_THAT(message_of([&] { parsed("[" + repeated("a.", 100000) + "a]\n"); }),
              testing::HasSubstr("more than 64 parts"));
  EXPECT_THAT(message_of([&] { parsed("x = {" + deep + "}"); }), testing::HasSubstr("more than 64 parts"));
  // Quoted parts with separators inside must not hide a long key.
  EXPECT_THAT(message_of([&] { parsed(repeated("\"=\".", 100000) + "a = 1"); }),
              testing::HasSubstr("more than 64 parts"));
  EXPECT_THAT(message_of([&] { parsed(repeated("'\"'.", 100000) + "a = 1"); }),
              testing::HasSubstr("more than 64 parts"));
  EXPECT_NE(message_of([&] { parsed("a = " + repeated("[", 100000)); }), "no error");
  EXPECT_THAT(message_of([&] { parsed("a = " + repeated("{b.c.d = ", 40) + "1" + repeated("}", 40)); }),
              testing::HasSubstr("nested deeper than 64 levels"));
  // Dots in texts, comments and lists of numbers are no keys.
  const std::string dots(1000, '.');
  EXPECT_NO_THROW(parsed("a = \"" + dots + "\"\nb = '''\n" + dots + "'''\n# " + dots + "\nc = [" +
                         repeated("1.5, ", 200) + "]\n"));
}

TEST(KeyPath, ParsesAndRefuses) {
  const auto parts = parse_key_path("a.\"b c\"[2][0].+d", "key");
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1].key, "b c");
  EXPECT_THAT(parts[1].indices, testing::ElementsAre(2u, 0u));
  EXPECT_TRUE(parts[2].append);
  for (const char* text : {"", ".", "a.", "a..b", "a b", "a[", "a[x]", "a[-1]", "\"a", "a[1]b", "a]"}) {
    EXPECT_THAT(message_of([&] { parse_key_path(text, "key"); }), testing::StartsWith("key: '")) << text;
  }
}

TEST(Writer, RoundTripsEveryKindOfValue) {
  const char* texts[] = {
      "",
      "a = 1\nb = -0.0\nc = 1e300\nd = 5e-324\ne = inf\nf = -inf\ng = nan\nh = 1e22\ni = 0.1\nj = "
      "9223372036854775807",
      "s = \"quote \\\" slash \\\\ tab \\t line \\n bell \\u0007 del \\u007F euro \\u20AC\"",
      "\"odd key\" = 1\n\"\" = 2\n[\"a.b\".\"c\\\"d\"]\nx = 3",
      "empty = []\n[t]\n[t.u]\n[v]\nw = {}",
      "mixed = [1, [2.5, \"x\"], {y = true, z = [{q = 1}]}]",
      "top = 1\n[[list]]\na = 1\n[list.sub]\nb = 2\n[[list.more]]\nc = 3\n[[list]]\n",
      "scalar_after = {t = {u = 1}, v = 2}",
  };
  for (const char* text : texts) {
    const Config config = parsed(text);
    for (const bool with_origins : {false, true}) {
      const std::string written = to_toml(config.root(), with_origins);
      EXPECT_EQ(parsed(written).root(), config.root()) << written;
    }
  }
}

TEST(Writer, PutsOriginsBehindValues) {
  const Config config = Config::parse("lr = 1e-3\nnames = [\"a\"]\n[t]\nx = 1\n[[o]]\ny = 2\n", "c.toml",
                                      {"lr=0.5", "+names=[\"b\"]", "z=line\nbreak\"x = 1"});
  EXPECT_EQ(to_toml(config.root(), true),
            "lr = 0.5  # --set lr=0.5\n"
            "names = [\"a\", \"b\"]  # --set +names=[\"b\"], appended to c.toml:2:9\n"
            "z = \"line\\nbreak\\\"x = 1\"  # --set z=line?break\"x = 1\n"
            "\n[t]\nx = 1  # c.toml:4:5\n"
            "\n[[o]]  # c.toml:5:1\ny = 2  # c.toml:6:5\n");
}

TEST(Flatten, ListsLeavesAndDifferences) {
  const Config a = parsed("x = 1\n[t]\ny = [1, 2]\n[[l]]\nz = \"q\"\n[e]\n");
  EXPECT_THAT(flatten(a.root()),
              testing::ElementsAre(testing::Pair("e", "{}"), testing::Pair("l[0].z", "\"q\""),
                                   testing::Pair("t.y", "[1, 2]"), testing::Pair("x", "1")));
  const auto found = differences(a.root(), parsed("x = 2\nnew = true\n[t]\ny = [1, 2]\n[e]\n").root());
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].key + found[0].left + "/" + found[0].right, "l[0].z\"q\"/");
  EXPECT_EQ(found[1].key + found[1].left + "/" + found[1].right, "new/true");
  EXPECT_EQ(found[2].key + found[2].left + "/" + found[2].right, "x1/2");
}

TEST(Suggest, MeasuresEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("stpes", "steps"), 1);
  EXPECT_EQ(edit_distance("ca", "abc"), 3);  // optimal string alignment: no edit inside a transposition
  EXPECT_EQ(edit_distance("Eval-Every", "eval_every"), 0);
}

TEST(Suggest, FindsTheNearestOrNothing) {
  const std::vector<std::string> keys = {"lr", "betas", "weight_decay", "eps", "steps"};
  const std::pair<const char*, const char*> cases[] = {{"beta", "betas"}, {"wieght_decay", "weight_decay"},
                                                       {"step", "steps"}, {"l", "lr"},
                                                       {"momentum", ""},  {"x", ""},
                                                       {"", ""},          {"WEIGHT-DECAY", "weight_decay"}};
  for (const auto& [word, expected] : cases) EXPECT_EQ(nearest(word, keys), expected) << word;
  EXPECT_EQ(nearest(std::string(100000, 'a'), keys), "");
}

TEST(DataPath, LooksInEveryPlaceInOrder) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("tenon_config_test_" + std::to_string(::getpid()));
  fs::create_directories(folder / "data");
  std::ofstream(folder / "data/only_here.txt") << "x";
  ::setenv("TENON_DATA_DIR", folder.c_str(), 1);
  EXPECT_EQ(resolve_path("data/only_here.txt"), (folder / "data/only_here.txt").string());
  EXPECT_EQ(resolve_path(folder / "data/only_here.txt"), (folder / "data/only_here.txt").string());
  EXPECT_THAT(message_of([] { resolve_path("no/such.txt"); }),
              testing::StartsWith("cannot find 'no/such.txt'; tried\n  " +
                                  (fs::current_path() / "no/such.txt").string() + "\n  " +
                                  (folder / "no/such.txt").string()));
  EXPECT_EQ(message_of([] { resolve_path("/no/such.txt"); }),
            "cannot find '/no/such.txt'; tried\n  /no/such.txt");
  ::unsetenv("TENON_DATA_DIR");
  // From the build tree the sources' own data serves.
  EXPECT_THAT(data_directories(), testing::ElementsAre(TENON_SOURCE_DIR));
  fs::remove_all(folder);
}

// One rule for every path: beside the file that says it, in the working directory, among what is shipped.
TEST(DataPath, CountsFromTheFileThatSaysIt) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("tenon_paths_test_" + std::to_string(::getpid()));
  fs::create_directories(folder / "mine");
  std::ofstream(folder / "mine/a.txt") << "x";
  const Origin said{(folder / "run.toml").string(), 3, 1};
  const Origin set{"--set data.path=mine/a.txt", 0, 0};
  EXPECT_EQ(resolve_path("mine/a.txt", said), (folder / "mine/a.txt").string());
  EXPECT_EQ(resolve_path("mine/../mine/a.txt", said), (folder / "mine/a.txt").string());
  EXPECT_THROW(resolve_path("mine/a.txt", set), Error);
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  EXPECT_EQ(resolve_path("mine/a.txt", set), (folder / "mine/a.txt").string());
  fs::current_path(before);
  EXPECT_EQ(resolve_path("configs/base/lenet5.toml", said), TENON_SOURCE_DIR "/configs/base/lenet5.toml");

  const std::string file = (folder / "mine/a.txt").string();
  EXPECT_EQ(resolve_entry("x=mine/a.txt", said, TENON_OPTION_NAMED), "x=" + file);
  EXPECT_EQ(resolve_entry("x=mine/a.txt:/set/y", said, TENON_OPTION_NAMED), "x=" + file + ":/set/y");
  EXPECT_EQ(resolve_entry("mine/a.txt", said, TENON_OPTION_NAMED), "mine/a.txt")
      << "its reader names what lacks";
  EXPECT_EQ(resolve_entry("later", said, TENON_OPTION_LATER), (fs::current_path() / "later").string());
  EXPECT_EQ(resolve_entry("mine", said, TENON_OPTION_LATER), (folder / "mine").string());
  fs::remove_all(folder);
}

}  // namespace
}  // namespace config
TENON_ABI_END
