// One table against its options: every error as whole text, defaults, old names, inner components, reading
// back.
#include "config/sample_components.hpp"
#include "config/words.hpp"
#include "test_paths.hpp"

#include <tenon/config.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

TENON_ABI_BEGIN
namespace config {
namespace {

constexpr const char* kOldRate[] = {"rate", "speed", nullptr};
constexpr OptionSpec kPlaceSpecs[] = {
    option::text("format", nullptr).one_of(sample::kRoundings),
    option::integer("bits", "8").between(1, 32),
};
constexpr OptionSpec kSpecs[] = {
    option::boolean("fused", "true"),
    option::integer("steps", nullptr).mandatory().at_least(1).doc_text("how far"),
    option::integer("level", "3").between(0, 9),
    option::real("lr", "1e-3").between(0, 1).formerly(kOldRate),
    option::real("wait", nullptr).at_least(0.5).in_unit("s"),
    option::real("top", "0").at_most(2),
    option::text("rounding", "'nearest'").one_of(sample::kRoundings),
    option::text("note", nullptr),
    option::path("file", nullptr),
    option::integers("grid", "[1, 2]").at_least(1),
    option::reals("betas", "[0.9, 0.999]").length(2).between(0, 1),
    option::texts("keep", "[]").one_of(sample::kRoundings),
    option::component("inner", "sync/1"),
    option::sections<kPlaceSpecs>("place"),
    option::tables<kPlaceSpecs>("phase"),
    option::components("part", "sync/1"),
};

Resolution resolve(std::string_view text, std::vector<std::string> sets = {}) {
  // The value needs to live only as long as the call: a resolution copies what it keeps.
  const Config config = Config::parse(text, "x.toml", sets);
  return resolve_options(
      component_request(config.root(), {"thing.sample", option_list(kSpecs)}, &sample::kCatalog));
}

std::string problem(std::string_view text) {
  try {
    resolve(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "accepted";
}

TEST(Options, FillsInDefaultsAndReadsBack) {
  Resolution resolution =
      resolve("type = \"sample\"\nsteps = 5\nlr = 1\ngrid = [4]\nkeep = [\"stochastic\"]\n");
  const Options& options = *resolution.options;
  EXPECT_TRUE(options.boolean("fused"));
  EXPECT_EQ(options.integer("steps"), 5);
  EXPECT_EQ(options.real("lr"), 1.0);
  EXPECT_EQ(options.text("rounding"), "nearest");
  EXPECT_THAT(options.integers("grid"), testing::ElementsAre(4));
  EXPECT_THAT(options.reals("betas"), testing::ElementsAre(0.9, 0.999));
  EXPECT_THAT(options.texts("keep"), testing::ElementsAre("stochastic"));
  EXPECT_FALSE(options.has("wait"));
  EXPECT_FALSE(options.has("inner"));
  EXPECT_EQ(options.component_pointer("inner", "sync/1"), nullptr);
  EXPECT_EQ(to_toml(resolution.table, true),
            "type = \"sample\"  # x.toml:1:8\n"
            "fused = true  # default\n"
            "steps = 5  # x.toml:2:9\n"
            "level = 3  # default\n"
            "lr = 1.0  # x.toml:3:6\n"
            "top = 0.0  # default\n"
            "rounding = \"nearest\"  # default\n"
            "grid = [4]  # x.toml:4:8\n"
            "betas = [0.9, 0.999]  # default\n"
            "keep = [\"stochastic\"]  # x.toml:5:8\n");
}

TEST(Options, RefusesWithAllFacts) {
  const std::pair<const char*, const char*> cases[] = {
      {"steps = 1\nbeta = 1",
       "x.toml:2:1: thing.sample has no option 'beta'; did you mean 'betas'? (see: tenon inspect "
       "thing.sample)"},
      {"steps = 1\nzzz = 1",
       "x.toml:2:1: thing.sample has no option 'zzz' (see: tenon inspect thing.sample)"},
      {"", "x.toml:1:1: thing.sample needs option 'steps': a whole number of at least 1, how far"},
      {"steps = \"many\"",
       "x.toml:1:9: option 'steps' of thing.sample: expected a whole number, found the string \"many\""},
      {"steps = 2.0",
       "x.toml:1:9: option 'steps' of thing.sample: expected a whole number, found the real number 2.0; "
       "write 2"},
      {"steps = 2.5",
       "x.toml:1:9: option 'steps' of thing.sample: expected a whole number, found the real number 2.5"},
      {"steps = 0", "x.toml:1:9: option 'steps' of thing.sample is 0; expected a whole number of at least 1"},
      {"steps = 1\nlevel = 10",
       "x.toml:2:9: option 'level' of thing.sample is 10; expected a whole number from 0 to 9"},
      {"steps = 1\nlr = \"fast\"",
       "x.toml:2:6: option 'lr' of thing.sample: expected a number, found the string \"fast\""},
      {"steps = 1\nlr = 1.5",
       "x.toml:2:6: option 'lr' of thing.sample is 1.5; expected a number from 0 to 1"},
      {"steps = 1\nlr = nan",
       "x.toml:2:6: option 'lr' of thing.sample is nan; expected a number from 0 to 1"},
      {"steps = 1\nwait = 0.25",
       "x.toml:2:8: option 'wait' of thing.sample is 0.25; expected a number of at least 0.5 s"},
      {"steps = 1\ntop = 3", "x.toml:2:7: option 'top' of thing.sample is 3; expected a number of at most 2"},
      {"steps = 1\nfused = \"true\"",
       "x.toml:2:9: option 'fused' of thing.sample: expected true or false, found the string \"true\"; write "
       "true without "
       "quotes"},
      {"steps = 1\nfused = 1",
       "x.toml:2:9: option 'fused' of thing.sample: expected true or false, found the whole number 1"},
      {"steps = 1\nrounding = \"neerest\"",
       "x.toml:2:12: option 'rounding' of thing.sample is \"neerest\"; expected one of 'nearest', "
       "'stochastic'; did you "
       "mean 'nearest'?"},
      {"steps = 1\nnote = {}", "x.toml:2:8: option 'note' of thing.sample: expected a string, found a table"},
      {"steps = 1\ngrid = 2",
       "x.toml:2:8: option 'grid' of thing.sample: expected a list of whole numbers, found the whole number "
       "2"},
      {"steps = 1\ngrid = [1, 0]",
       "x.toml:2:12: option 'grid[1]' of thing.sample is 0; expected a whole number of at least 1"},
      {"steps = 1\nbetas = [\n0.5, \"x\"]",
       "x.toml:3:6: option 'betas[1]' of thing.sample: expected a number, found the string \"x\""},
      {"steps = 1\nkeep = [\"up\"]",
       "x.toml:2:9: option 'keep[0]' of thing.sample is \"up\"; expected one of 'nearest', 'stochastic'"},
      {"steps = 1\nlr = 0.1\nrate = 0.2",
       "x.toml:3:1: 'rate' is the former name of option 'lr' of thing.sample, which is set too (x.toml:2:1); "
       "keep one"},
      {"steps = 1\nrate = 2", "x.toml:2:8: option 'lr' of thing.sample is 2; expected a number from 0 to 1"},
      {"steps = 1\ninner = \"mean\"",
       "x.toml:2:9: option 'inner' of thing.sample: expected a table with its own 'type', found the string "
       "\"mean\"; write "
       "inner = {type = \"mean\"}"},
      {"steps = 1\n[inner]\nbucket_mib = 1",
       "x.toml:2:1: option 'inner' of thing.sample needs a 'type' in quotes: the name of a component of kind "
       "sync"},
      {"steps = 1\ninner.type = \"maen\"", "x.toml:2:14: no component 'maen'; did you mean 'mean'?"},
      {"steps = 1\n[inner]\ntype = \"mean\"\nbucket_mb = 1",
       "x.toml:4:1: sync.mean has no option 'bucket_mb'; did you mean 'bucket_mib'? (see: tenon inspect "
       "sync.mean)"},
      {"steps = 1\n[inner]\ntype = \"warmup\"\n[inner.inner]\ntype = \"mean\"\nbucket_mib = -1",
       "x.toml:6:14: option 'bucket_mib' of sync.mean is -1; expected a number of at least 0 MiB"},
      {"steps = 1\nplace = 3",
       "x.toml:2:9: option 'place' of thing.sample: expected tables under names of your own, such as "
       "place.\"NAME\" = {...}, found the whole number 3"},
      {"steps = 1\nplace.\"h.*\" = 3",
       "x.toml:2:15: thing.sample.place.\"h.*\" takes a table, found the whole number 3"},
      {"steps = 1\n[place.\"h.*\"]\nbit = 3",
       "x.toml:3:1: thing.sample.place.\"h.*\" has no option 'bit'; did you mean 'bits'? (see: tenon inspect "
       "thing.sample)"},
      {"steps = 1\n[place.\"h.*\"]\nbits = 33",
       "x.toml:3:8: option 'bits' of thing.sample.place.\"h.*\" is 33; expected a whole number from 1 to 32"},
      {"level = 11\nlr = 2\nzzz = 1",
       "x.toml:3:1: thing.sample has no option 'zzz' (see: tenon inspect thing.sample)\n"
       "x.toml:1:1: thing.sample needs option 'steps': a whole number of at least 1, how far\n"
       "x.toml:1:9: option 'level' of thing.sample is 11; expected a whole number from 0 to 9\n"
       "x.toml:2:6: option 'lr' of thing.sample is 2; expected a number from 0 to 1"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(problem(text), message) << text;
}

TEST(Options, SectionsComeUnderTheUsersNamesInTheirOrder) {
  const Resolution none = resolve("steps = 1\n");
  EXPECT_FALSE(none.options->has("place"));
  EXPECT_TRUE(none.options->section_names("place").empty());

  const Resolution resolution =
      resolve("steps = 1\n[place.\"h.*\"]\nbits = 4\n[place.a]\nformat = \"nearest\"\n",
              {"place.\"h.*\".format=stochastic", "place.z.bits=1"});
  const Options& options = *resolution.options;
  EXPECT_THAT(options.section_names("place"), testing::ElementsAre("h.*", "a", "z"));
  EXPECT_EQ(options.section("place", "h.*").integer("bits"), 4);
  EXPECT_EQ(options.section("place", "h.*").text("format"), "stochastic");
  EXPECT_EQ(options.section("place", "a").integer("bits"), 8);
  EXPECT_FALSE(options.section("place", "z").has("format"));
  EXPECT_THAT(to_toml(resolution.table, true), testing::HasSubstr("\nbits = 4  # x.toml:3:8\n"));
  EXPECT_THROW(options.section("place", "b"), Error);
  EXPECT_THROW(options.section_names("steps"), Error);
}

TEST(Options, TablesComeInTheirOrder) {
  const Resolution none = resolve("steps = 1\n");
  EXPECT_FALSE(none.options->has("phase"));
  EXPECT_TRUE(none.options->tables("phase").empty());

  const Resolution resolution = resolve("steps = 1\n[[phase]]\nbits = 4\n[[phase]]\nformat = \"nearest\"\n");
  for (const auto& options :
       {resolution.options->unmade(), resolve("steps = 1\nphase = [{bits = 4}, {format = "
                                              "\"nearest\"}]\n")
                                          .options->unmade()}) {
    const std::vector<const Options*> phases = options->tables("phase");
    ASSERT_EQ(phases.size(), 2u);
    EXPECT_EQ(phases[0]->integer("bits"), 4);
    EXPECT_FALSE(phases[0]->has("format"));
    EXPECT_EQ(phases[1]->integer("bits"), 8);
    EXPECT_EQ(phases[1]->text("format"), "nearest");
  }
  EXPECT_THAT(to_toml(resolution.table, false), testing::HasSubstr("[[phase]]\nbits = 4\n"));
  EXPECT_THROW(resolution.options->tables("steps"), Error);
  EXPECT_EQ(problem("steps = 1\nphase = 4\n"),
            "x.toml:2:9: option 'phase' of thing.sample: expected an array of tables, [[...phase]] for each, "
            "found the whole number 4");
  EXPECT_THAT(
      problem("steps = 1\n[[phase]]\nbits = 4\n[[phase]]\nbit = 4\n"),
      testing::HasSubstr("x.toml:5:1: thing.sample.phase[1] has no option 'bit'; did you mean 'bits'?"));
}

TEST(Options, OneTableIsAListOfOne) {
  const Resolution one = resolve("steps = 1\n[phase]\nbits = 4\n"),
                   list = resolve("steps = 1\n[[phase]]\nbits = 4\n");
  const std::vector<const Options*> phases = one.options->tables("phase");
  ASSERT_EQ(phases.size(), 1U);
  EXPECT_EQ(phases[0]->integer("bits"), 4);
  EXPECT_EQ(to_toml(one.table, false), to_toml(list.table, false)) << "a run's digest does not depend on it";
  EXPECT_EQ(problem("steps = 1\n[phase]\nbit = 4\n"),
            "x.toml:3:1: thing.sample.phase[0] has no option 'bit'; did you mean 'bits'? (see: tenon inspect "
            "thing.sample)");
}

/// An object stands for a component that was made.
void make_inner(ResolvedOptions& options, std::size_t place, void* object) {
  options.inner().at(place).second->instance = {object, [](void*) {}};
}

struct SyncOfTest {
  static constexpr const char* kKind = "sync/1";
};

TEST(Options, ComponentsComeInTheirOrder) {
  const Resolution none = resolve("steps = 1\n");
  EXPECT_FALSE(none.options->has("part"));
  EXPECT_TRUE(none.options->components<SyncOfTest>("part").empty());
  EXPECT_TRUE(resolve("steps = 1\npart = []\n").options->has("part"));
  EXPECT_TRUE(resolve("steps = 1\npart = []\n").options->components<SyncOfTest>("part").empty());

  const char* const text =
      "steps = 1\n[[part]]\ntype = \"mean\"\nbucket_mib = 2\n[[part]]\ntype = \"warmup\"\n"
      "inner.type = \"mean\"\n";
  const Resolution resolution = resolve(text);
  EXPECT_THAT(to_toml(resolution.table, true),
              testing::AllOf(testing::HasSubstr(
                                 "[[part]]  # x.toml:2:1\ntype = \"mean\"  # x.toml:3:8\nbucket_mib = 2.0"),
                             testing::HasSubstr("steps = 100  # default\n"),
                             testing::HasSubstr("[part.inner]\ntype = \"mean\"")));
  for (const auto& options : {resolution.options->unmade(), resolve(text).options->unmade()}) {
    const auto inner = options->inner();
    ASSERT_EQ(inner.size(), 2u);
    EXPECT_EQ(inner[0].first, "part.0");
    EXPECT_EQ(inner[1].first, "part.1");
    EXPECT_EQ(inner[0].second->type, "mean");
    EXPECT_EQ(inner[0].second->options->real("bucket_mib"), 2);
    EXPECT_EQ(inner[1].second->kind, "sync/1");
    int objects[2];
    make_inner(*options, 0, &objects[0]);
    make_inner(*options, 1, &objects[1]);
    const std::vector<SyncOfTest*> parts = options->components<SyncOfTest>("part");
    ASSERT_EQ(parts.size(), 2u);
    EXPECT_EQ(static_cast<void*>(parts[0]), &objects[0]);
    EXPECT_EQ(static_cast<void*>(parts[1]), &objects[1]);
  }
}

TEST(Options, ListsOfComponentsAreRefusedWithAllFacts) {
  const std::pair<const char*, const char*> cases[] = {
      {"steps = 1\n[part]\ntype = \"mean\"",
       "x.toml:2:1: option 'part' of thing.sample: expected an array of tables, [[...part]] for each, each "
       "with "
       "its own 'type', found a table"},
      {"steps = 1\npart = [{type = \"mean\"}, \"mean\"]",
       "x.toml:2:26: option 'part[1]' of thing.sample: expected a table with its own 'type', found the "
       "string "
       "\"mean\""},
      {"steps = 1\n[[part]]\ntype = \"mean\"\n[[part]]\nbucket_mib = 1",
       "x.toml:4:1: option 'part.1' of thing.sample needs a 'type' in quotes: the name of a component of "
       "kind "
       "sync"},
      {"steps = 1\n[[part]]\ntype = \"maen\"", "x.toml:3:8: no component 'maen'; did you mean 'mean'?"},
      {"steps = 1\n[[part]]\ntype = \"mean\"\nbucket_mb = 1",
       "x.toml:4:1: sync.mean has no option 'bucket_mb'; did you mean 'bucket_mib'? (see: tenon inspect "
       "sync.mean)"},
      {"steps = 1\n[[part]]\ntype = \"mean\"\nbucket_mib = -1\n[[part]]\ntype = \"warmup\"\nsteps = \"x\"",
       "x.toml:4:14: option 'bucket_mib' of sync.mean is -1; expected a number of at least 0 MiB\n"
       "x.toml:7:9: option 'steps' of sync.warmup: expected a whole number, found the string \"x\""},
      {"steps = 1\n[[part]]\ntype = \"stack\"",
       "x.toml:2:1: sync.stack needs option 'part': an array of tables, each with its own 'type'"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(problem(text), message) << text;
}

TEST(Options, ListsMayHaveALength) {
  EXPECT_EQ(problem("steps = 1\nbetas = [0.9]\n"),
            "x.toml:2:9: option 'betas' of thing.sample is [0.9]; expected a list of 2 numbers");
  EXPECT_EQ(problem("steps = 1\nbetas = 0.9\n"),
            "x.toml:2:9: option 'betas' of thing.sample: expected a list of 2 numbers, found the real "
            "number 0.9");
}

TEST(Options, WarnsOfOldNames) {
  const Resolution resolution = resolve("steps = 1\nspeed = 0.5\n");
  EXPECT_EQ(resolution.options->real("lr"), 0.5);
  EXPECT_THAT(resolution.warnings,
              testing::ElementsAre("x.toml:2:1: option 'speed' of thing.sample is now called 'lr'"));
  EXPECT_EQ(resolution.table.find("speed"), nullptr);
}

TEST(Options, ChoicesStandForValues) {
  static constexpr auto kPlaces = option::choice<int>({{"first", 1}, {"second", 2}});
  EXPECT_STREQ(option::text("place", "'first'").one_of(kPlaces).choices[1], "second");
  EXPECT_EQ(option::text("place", "'first'").one_of(kPlaces).choices[2], nullptr);
  EXPECT_EQ(kPlaces.of("second"), 2);
  EXPECT_STREQ(kPlaces.name(1), "first");
  EXPECT_THROW(kPlaces.of("third"), Error) << "the last name must not stand for all others";
  EXPECT_THROW(kPlaces.name(3), Error);
  EXPECT_EQ(resolve("steps = 1\nrounding = \"stochastic\"\n")
                .options->choice("rounding", option::choice<int>({{"nearest", 1}, {"stochastic", 2}})),
            2);
}

TEST(Options, ResolvesPaths) {
  const Resolution resolution = resolve("steps = 1\nfile = \"core/include/tenon/config.hpp\"\n");
  EXPECT_EQ(resolution.options->text("file"),
            std::string(TENON_SOURCE_DIR) + "/core/include/tenon/config.hpp");
  EXPECT_EQ(resolution.table.find("file")->text(), resolution.options->text("file"))
      << "the run is read anywhere";
  EXPECT_EQ(resolution.table.find("file")->origin.text(), "x.toml:2:8");
  EXPECT_THAT(
      problem("steps = 1\nfile = \"no/such\""),
      testing::StartsWith("x.toml:2:8: option 'file' of thing.sample: cannot find 'no/such'; tried\n  /"));
}

TEST(Options, AuthorsMistakesAreNamed) {
  Resolution resolution = resolve("steps = 1\ninner.type = \"mean\"\npart = [{type = \"mean\"}]\n");
  const Options& options = *resolution.options;
  const std::pair<std::function<void()>, const char*> cases[] = {
      {[&] { options.real("rate_of"); }, "thing.sample asks for option 'rate_of', which it does not declare"},
      {[&] { options.text("lr"); }, "thing.sample declares option 'lr' as real and reads it as text"},
      {[&] { options.real("wait"); },
       "thing.sample reads option 'wait', which was left out and has no default; ask has() first"},
      {[&] { options.component_pointer("inner", "optimizer/1"); },
       "thing.sample declares option 'inner' as a component of kind sync/1 and reads it as optimizer/1"},
      {[&] { options.component_pointer("inner", "sync/1"); },
       "thing.sample reads option 'inner' before its component was made"},
      {[&] { options.component_pointer("lr", "sync/1"); },
       "thing.sample declares option 'lr' as real and reads it as component"},
      {[&] { options.component_pointer("part", "sync/1"); },
       "thing.sample declares option 'part' as a list of components and reads it as component"},
      {[&] { options.components<SyncOfTest>("part"); },
       "thing.sample reads option 'part.0' before its component was made"},
      {[&] { options.component_pointer("part.1", "sync/1"); },
       "thing.sample asks for option 'part.1', which it does not declare"},
      {[&] { options.components<SyncOfTest>("inner"); },
       "thing.sample declares option 'inner' as component and reads it as sections"},
      {[] {
         static constexpr OptionSpec bad[] = {option::integer("n", "0").at_least(1)};
         const Value empty;
         resolve_options({.table = empty, .owner = "thing.bad", .specs = option_list(bad)});
       },
       "thing.bad declares option 'n' with a default that does not fit its own rules: default: option 'n' of "
       "thing.bad is "
       "0; expected a whole number of at least 1"},
      {[] {
         static constexpr OptionSpec bad[] = {option::text("t", "bare")};
         const Value empty;
         resolve_options({.table = empty, .owner = "thing.bad", .specs = option_list(bad)});
       },
       "thing.bad declares option 't' with a default that does not fit its own rules: default: 'bare' is not "
       "a TOML value ("},
  };
  for (const auto& [call, message] : cases) {
    try {
      call();
      ADD_FAILURE() << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kPlugin);
      EXPECT_THAT(error.what(), testing::StartsWith(message));
    }
  }
}

TEST(Options, InnerComponentsDieBeforeTheirOptionsAndLastFirst) {
  static std::vector<int> order;
  order.clear();
  static constexpr OptionSpec two[] = {option::component("first", "sync/1"),
                                       option::component("second", "sync/1")};
  const Config config = Config::parse("first.type = \"mean\"\nsecond.type = \"mean\"\n", "x.toml", {});
  Resolution resolution = resolve_options({.table = config.root(),
                                           .owner = "thing.two",
                                           .specs = option_list(two),
                                           .catalog = &sample::kCatalog});
  int objects[] = {1, 2};
  int next = 0;
  for (auto& [name, inner] : resolution.options->inner()) {
    inner->instance = {&objects[next++], [](void* object) { order.push_back(*static_cast<int*>(object)); }};
  }
  EXPECT_EQ(resolution.options->component_pointer("second", "sync/1"), &objects[1]);
  resolution.options.reset();
  EXPECT_THAT(order, testing::ElementsAre(2, 1));
}

TEST(Options, SayWhereAnErrorThatIsFoundLaterHasItsCause) {
  const Resolution resolution =
      resolve("steps = 4\nlevel = 2\ngrid = [3]\n[place.\"h.*\"]\nbits = 4\n", {"lr=0.5"});
  const ResolvedOptions& options = *resolution.options;
  const std::pair<const char*, const char*> cases[] = {
      {"option 'level' is odd", "x.toml:2:9"},
      {"level 2 with steps 4", "x.toml:2:9"},
      {"the file /level/x with 'steps' in it", "x.toml:1:9"},
      {"thing.grid: no", "x.toml:3:8"},
      {"levels and a levelling", "x.toml:1:1"},
      {"lr = 0.5 is high", "--set lr=0.5"},
      {"betas are defaults", "x.toml:1:1"},
      {"in place \"h.*\": bits = 4 is few", "x.toml:5:8"},
      {"levels in C order, level by level", "x.toml:1:1"},
      {"nothing is named", "x.toml:1:1"},
  };
  for (const auto& [message, place] : cases) EXPECT_EQ(options.place_of(message), place) << message;
  const Resolution listed = resolve("steps = 1\n[[phase]]\nbits = 4\n[[phase]]\nbits = 2\n");
  EXPECT_EQ(listed.options->place_of("'phase' 1 (of 0): 'bits' are few"), "x.toml:5:8");
  EXPECT_EQ(listed.options->place_of("'phase' 0 (of 1): 'bits' are few"), "x.toml:3:8");
  EXPECT_EQ(listed.options->place_of("'phase' has 0 or 1"), "x.toml:2:1");
  const Resolution stacked = resolve("steps = 1\n[[part]]\ntype = \"mean\"\n[[part]]\ntype = \"mean\"\n");
  EXPECT_EQ(stacked.options->place_of("'part.1' gives nothing"), "x.toml:4:1");
  EXPECT_EQ(stacked.options->place_of("'part' is a list"), "x.toml:2:1");
  ResolvedOptions named("thing.sample");
  named.set_origin(Origin{"x.toml", 7, 2});
  EXPECT_EQ(named.place_of("nothing is named"), "x.toml:7:2") << "the table";
}

TEST(Options, OfTheCoreArePlacedByTheirKeys) {
  const Config config = Config::parse("[run]\nsteps = 3\n[a.b]\nc = 1\n", "x.toml", {"parallel.workers=4"});
  const std::pair<const char*, const char*> cases[] = {
      {"parallel.workers: too many", "--set parallel.workers=4: parallel.workers: too many"},
      {"with run.steps, or lower it.", "x.toml:2:9: with run.steps, or lower it."},
      {"[run] steps = 3 is few", "x.toml:2:9: [run] steps = 3 is few"},
      {"e.g. a.b.c.", "x.toml:4:5: e.g. a.b.c."},
      {"x.toml:9:1: run.steps", "x.toml:9:1: run.steps"},
      {"--set run.steps=1: run.steps", "--set run.steps=1: run.steps"},
      {"nothing. run .. a.b", "nothing. run .. a.b"},
      {"...", "..."},
      {"", ""},
  };
  for (const auto& [message, placed] : cases) EXPECT_EQ(with_place(config, message), placed);
}

}  // namespace
}  // namespace config
TENON_ABI_END
