// Layers: merging, extends with its chain and cycles, --set, types that change, explanations.
#include "test_paths.hpp"

#include <tenon/config.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <unistd.h>
#include <initializer_list>

TENON_ABI_BEGIN
namespace config {
namespace {

namespace fs = std::filesystem;

// A folder of small files; paths in messages are shown relative to it by way of the working directory.
class Layers : public testing::Test {
 protected:
  void SetUp() override {
    before_ = fs::current_path();
    folder_ = fs::temp_directory_path() / ("tenon_layers_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    fs::current_path(folder_);
  }
  void TearDown() override {
    fs::current_path(before_);
    fs::remove_all(folder_);
  }

  static void write(const std::string& path, const std::string& text) {
    if (const fs::path parent = fs::path(path).parent_path(); !parent.empty()) fs::create_directories(parent);
    std::ofstream(path) << text;
  }

  static std::string flat(const Config& config) {
    std::string out;
    for (const auto& [key, value] : flatten(config.root()))
      out += (out.empty() ? "" : "; ") + key + "=" + value;
    return out;
  }

  static std::string load_error(const std::string& path, const std::vector<std::string>& sets = {}) {
    try {
      return "accepted: " + flat(Config::load(path, sets));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
  }

 private:
  fs::path before_, folder_;
};

TEST_F(Layers, MergeRules) {
  const struct {
    const char* name;
    const char* base;
    const char* top;
    const char* result;
  } cases[] = {
      {"tables merge", "[t]\na = 1\nb = 2", "[t]\nb = 3\nc = 4", "t.a=1; t.b=3; t.c=4"},
      {"scalar types may change", "a = 1", "a = \"x\"", "a=\"x\""},
      {"lists replace", "a = [1, 2]", "a = [3]", "a=[3]"},
      {"lists append", "a = [1, 2]", "\"+a\" = [3]", "a=[1, 2, 3]"},
      {"append to nothing", "", "\"+a\" = [3]", "a=[3]"},
      {"append inside a new table", "", "[t]\n\"+a\" = [3]", "t.a=[3]"},
      {"replace then append in one file", "a = [1]", "\"+a\" = [3]\na = [2]", "a=[2, 3]"},
      {"tables in lists replace", "[[o]]\nx = 1\n[[o]]\nx = 2", "[[o]]\ny = 3", "o[0].y=3"},
      {"tables in lists append", "[[o]]\nx = 1", "[[\"+o\"]]\ny = 3", "o[0].x=1; o[1].y=3"},
      {"table replaces scalar", "a = 1", "[a]\nb = 2", "a.b=2"},
      {"append inside a table that replaces a scalar", "a = 1", "[a]\n\"+b\" = [2]", "a.b=[2]"},
      {"same type keeps options", "[m]\ntype = \"a\"\nx = 1", "[m]\ntype = \"a\"\ny = 2",
       "m.type=\"a\"; m.x=1; m.y=2"},
      {"new type drops options", "[m]\ntype = \"a\"\nx = 1\n[m.inner]\ntype = \"q\"",
       "[m]\ntype = \"b\"\ny = 2", "m.type=\"b\"; m.y=2"},
      {"new type in an inner table", "[m]\ntype = \"a\"\nx = 1\n[m.inner]\ntype = \"q\"\nz = 1",
       "[m.inner]\ntype = \"r\"", "m.inner.type=\"r\"; m.type=\"a\"; m.x=1"},
      {"first type drops nothing", "[m]\nx = 1", "[m]\ntype = \"b\"", "m.type=\"b\"; m.x=1"},
      {"keys of the core stay", "[sync]\ntype = \"a\"\nbuffers = \"local\"\np = 1", "[sync]\ntype = \"b\"",
       "sync.buffers=\"local\"; sync.type=\"b\""},
      {"sub-tables of the core stay", "[transport]\ntype = \"a\"\nslots = 2\n[transport.link]\nlatency = 1.0",
       "[transport]\ntype = \"b\"", "transport.link.latency=1.0; transport.type=\"b\""},
  };
  for (const auto& test : cases) {
    write("base.toml", test.base);
    write("top.toml", std::string("extends = \"base.toml\"\n") + test.top);
    EXPECT_EQ(flat(Config::load("top.toml", {})), test.result) << test.name;
  }
}

TEST_F(Layers, OrderOfFilesAndSets) {
  write("base/a.toml", "x = \"a\"\ny = \"a\"\nz = \"a\"\nw = \"a\"");
  write("presets/b.toml", "extends = [\"../base/a.toml\"]\ny = \"b\"\nz = \"b\"\nw = \"b\"");
  write("presets/c.toml", "extends = [\"../base/a.toml\"]\nz = \"c\"\nw = \"c\"");
  write("runs/d.toml", "extends = [\"../presets/b.toml\", \"../presets/c.toml\"]\nw = \"d\"");
  const Config config = Config::load("runs/d.toml", {});
  // A shared base applies once: a second time it would undo y of b.toml.
  EXPECT_EQ(flat(config), "w=\"d\"; x=\"a\"; y=\"b\"; z=\"c\"");
  EXPECT_THAT(config.files(),
              testing::ElementsAre("base/a.toml", "presets/b.toml", "presets/c.toml", "runs/d.toml"));
  EXPECT_EQ(flat(Config::load("runs/d.toml", {"w=e"})), "w=\"e\"; x=\"a\"; y=\"b\"; z=\"c\"");
  write("over.toml", "x = \"over\"");
  EXPECT_EQ(flat(Config::load("runs/d.toml", {"w=e"}, {"over.toml"})),
            "w=\"e\"; x=\"over\"; y=\"b\"; z=\"c\"");
}

TEST_F(Layers, ExtendsErrorsShowTheChain) {
  write("a.toml", "extends = [\"sub/b.toml\"]");
  write("sub/b.toml", "\nextends = \"../c.toml\"");
  write("c.toml", "extends = \"a.toml\"");
  EXPECT_EQ(load_error("a.toml"),
            "c.toml:1:11: extends makes a cycle: a.toml -> sub/b.toml -> c.toml -> a.toml\n"
            "  c.toml is extended at sub/b.toml:2:11\n"
            "  sub/b.toml is extended at a.toml:1:12");
  write("c.toml", "extends = \"c.toml\"");
  EXPECT_THAT(load_error("c.toml"),
              testing::StartsWith("c.toml:1:11: extends makes a cycle: c.toml -> c.toml"));
  write("c.toml", "extends = \"gone.toml\"");
  EXPECT_EQ(
      load_error("a.toml"),
      "c.toml:1:11: cannot read 'gone.toml' (extends \"gone.toml\"): No such file or directory; nor is there "
      "'" TENON_SOURCE_DIR
      "/gone.toml'\n"
      "  c.toml is extended at sub/b.toml:2:11\n"
      "  sub/b.toml is extended at a.toml:1:12");
  write("c.toml", "extends = \"sub\"");
  EXPECT_THAT(load_error("c.toml"), testing::HasSubstr("it is a folder"));
  EXPECT_THAT(load_error("none.toml"),
              testing::StartsWith("cannot read 'none.toml': No such file or directory"));
  write("c.toml", "extends = [1]");
  EXPECT_EQ(
      load_error("c.toml"),
      "c.toml:1:12: extends takes the path of a TOML file, or a list of them; found the whole number 1");
  write("c.toml", "x = = 1");
  EXPECT_THAT(load_error("a.toml"), testing::StartsWith("c.toml:1:5: "));
}

// Beside the file, in the working directory, among what is shipped; a name that is nowhere is compared with
// those.
TEST_F(Layers, ExtendsFindsShippedConfigurations) {
  write("sub/a.toml", "extends = \"here.toml\"\ny = 1");
  write("here.toml", "x = 1");
  EXPECT_EQ(flat(Config::load("sub/a.toml", {})), "x=1; y=1");
  write("sub/here.toml", "x = 2");
  EXPECT_EQ(flat(Config::load("sub/a.toml", {})), "x=2; y=1");
  write("sub/a.toml", "extends = [\"configs/presets/schedule_constant.toml\"]");
  EXPECT_THAT(flat(Config::load("sub/a.toml", {})), testing::HasSubstr("schedule.type=\"constant\""));
  EXPECT_THAT(flat(Config::load("configs/presets/schedule_constant.toml", {})),
              testing::HasSubstr("constant"));
  write("sub/a.toml", "extends = \"presets/sync_dilocco.toml\"");
  EXPECT_THAT(
      load_error("sub/a.toml"),
      testing::AllOf(testing::StartsWith("sub/a.toml:1:11: cannot read 'sub/presets/sync_dilocco.toml'"),
                     testing::EndsWith("; did you mean 'configs/presets/sync_diloco.toml'?")));
}

TEST_F(Layers, AppendErrors) {
  write("base.toml", "a = 1");
  write("top.toml", "extends = \"base.toml\"\n\"+a\" = [3]");
  EXPECT_EQ(load_error("top.toml"),
            "top.toml:2:8: '+a' appends to a list, but base.toml:1:5 sets it to the whole number 1");
  write("top.toml", "\"+a\" = 3");
  EXPECT_EQ(load_error("top.toml"),
            "top.toml:1:8: '+a' appends to a list; expected a list, found the whole number 3");
  write("top.toml", "[[o]]\n\"+a\" = [1]");
  EXPECT_THAT(load_error("top.toml"),
              testing::StartsWith("top.toml:2:1: '+a' appends to the list of an earlier layer"));
  write("top.toml", "\"++a\" = [1]");
  EXPECT_EQ(load_error("top.toml"),
            "top.toml:1:1: '++a' begins with '+' twice; one '+' appends to the list of an earlier layer");
}

TEST_F(Layers, SetsReadTomlOrBareText) {
  write("x.toml", "");
  const std::pair<const char*, const char*> cases[] = {
      {"a=1", "a=1"},
      {"a.b=1e-3", "a.b=0.001"},
      {"a = true ", "a=true"},
      {"a=fast", "a=\"fast\""},
      {"a=", "a=\"\""},
      {"a=two words = x", "a=\"two words = x\""},
      {"a=[1, 2]", "a=[1, 2]"},
      {"a={b = 1}", "a.b=1"},
      {"a=\"1\"", "a=\"1\""},
      {"a=2024-01-01", "a=\"2024-01-01\""},
      {"a=1#b", "a=\"1#b\""},
      {"a=1\nb=2", "a=\"1\\nb=2\""},
      {"\"k=y\".c=1", "\"k=y\".c=1"},
      {"+a=[1]", "a=[1]"},
  };
  for (const auto& [set, result] : cases) EXPECT_EQ(flat(Config::load("x.toml", {set})), result) << set;
  EXPECT_EQ(Config::load("x.toml", {"a.b=1"}).find("a.b")->origin.text(), "--set a.b=1");
  EXPECT_EQ(flat(Config::load("x.toml", {"+a=[1]", "a=[0]", "+a=[2]"})), "a=[0, 1, 2]");
}

TEST_F(Layers, SetErrors) {
  write("x.toml", "a = [1]");
  const std::pair<const char*, const char*> cases[] = {
      {"steps", "--set steps: expected KEY=VALUE, for example --set optimizer.lr=1e-3"},
      {"=1", "--set =1: '' is not a dotted key such as optimizer.lr: a part is empty at character 1"},
      {"a..b=1",
       "--set a..b=1: 'a..b' is not a dotted key such as optimizer.lr: a part is empty at character 3"},
      {"a b=1", "--set a b=1: 'a b' is not a dotted key such as optimizer.lr: unexpected ' ' at character 2"},
      {"a[0]=1",
       "--set a[0]=1: an element of a list cannot be set; set the whole list, or append with +a=[...]"},
      {"+a.b=1", "--set +a.b=1: '+' belongs before the last part of the key"},
      {"extends=y.toml", "--set extends=y.toml: extends belongs in a file"},
      {"a=[1, 2", "--set a=[1, 2: '[1, 2' is not a TOML value ("},
      {"a=\"open", "--set a=\"open: '\"open' is not a TOML value ("},
      {"a=\xff", "--set a=?: not valid UTF-8"},
      {"+a=3", "--set +a=3: '+a' appends to a list; expected a list, found the whole number 3"},
  };
  for (const auto& [set, message] : cases) {
    EXPECT_THAT(load_error("x.toml", {set}), testing::StartsWith(message)) << set;
  }
}

TEST_F(Layers, SetsOfOneCommandAreOneLayer) {
  write("x.toml", "[m]\ntype = \"a\"\nx = 1");
  for (const std::vector<std::string>& sets :
       {std::vector<std::string>{"m.type=b", "m.y=2"}, std::vector<std::string>{"m.y=2", "m.type=b"}}) {
    EXPECT_EQ(flat(Config::load("x.toml", sets)), "m.type=\"b\"; m.y=2");
  }
}

TEST_F(Layers, ExplainsEachLayer) {
  write("base.toml", "[opt]\ntype = \"a\"\nlr = 1e-4\nextra = 5\nlist = [1]\n");
  write("mid.toml", "extends = \"base.toml\"\n[opt]\nlr = 1e-3\n\"+list\" = [2]\n");
  const Config config = Config::load("mid.toml", {"opt.lr=0.5"});
  EXPECT_EQ(config.explain("opt.lr"),
            "opt.lr = 0.5\n  set at --set opt.lr=0.5\n  over 0.001 at mid.toml:3:6\n  over 0.0001 at "
            "base.toml:3:6\n");
  EXPECT_EQ(config.explain("opt.list"),
            "opt.list = [1, 2]\n  last appended to at mid.toml:4:11\n  added to [1] at base.toml:5:8\n");
  EXPECT_EQ(config.explain("opt.ls"), "opt.ls is not set; did you mean 'lr'?\n");
  EXPECT_EQ(config.explain("nothing.here"), "nothing.here is not set\n");
  EXPECT_THAT(config.explain("opt"), testing::HasSubstr("opt.extra = 5\n  set at base.toml:4:9\n"));
  const Config changed = Config::load("mid.toml", {"opt.type=b"});
  EXPECT_EQ(changed.explain("opt.extra"),
            "opt.extra is not set\n  5 at base.toml:4:9 was dropped when the type of the table changed at "
            "--set opt.type=b\n");
  EXPECT_THROW(config.explain("opt..lr"), Error);
  EXPECT_THAT(config.dropped_lines(false), testing::IsEmpty());
  EXPECT_THAT(changed.dropped_lines(true), testing::IsEmpty());
  EXPECT_THAT(
      changed.dropped_lines(false),
      testing::Contains("opt.extra = 5 (base.toml:4:9) was dropped when the type of its table changed (--set "
                        "opt.type=b)"));
  EXPECT_THAT(Config::load("mid.toml", {"opt.type=b", "opt.lr=3"}).dropped_lines(true),
              testing::ElementsAre(
                  "opt.lr = 0.001 (mid.toml:3:6) was dropped when the type of its table changed (--set "
                  "opt.type=b); the new type has it, too: 3 (--set opt.lr=3)"));
}

}  // namespace
}  // namespace config
TENON_ABI_END
