#include "support.hpp"

#include <gmock/gmock.h>

#include <cstdlib>

// twin.cpp, compiled with TENON_PLUGIN_STATIC_NAME
extern "C" const tenon_plugin_v1_t linked_twin;

namespace tenon {
namespace {

namespace fs = std::filesystem;
using fixture::error_text;
using fixture::FakeHost;
using State = PluginStatus::State;

const PluginStatus& status_of(const std::vector<PluginStatus>& plugins, const fs::path& file) {
  for (const PluginStatus& plugin : plugins) {
    if (plugin.file == file) return plugin;
  }
  throw std::out_of_range(file.string());
}

TEST(Registry, LoadsOnlyTheFileThatOffersTheType) {
  Registry registry;
  registry.discover_only({std::string(FIXTURES) + "/good"});
  const auto before = registry.plugins();
  ASSERT_EQ(before.size(), 3u);
  for (const PluginStatus& plugin : before) EXPECT_EQ(plugin.state, State::kOffered) << plugin.reason;
  EXPECT_EQ(registry.ids("toy/1"), (std::vector<std::string>{"counter", "twin"}));

  const ComponentRef ref = registry.find("toy/1", "counter");
  EXPECT_EQ(ref.name, "toy.counter");
  EXPECT_EQ(ref.plugin, "acme.good");
  EXPECT_EQ(ref.plugin_version, "1.2.3");
  EXPECT_EQ(ref.file, fixture::path("good/good").string());
  EXPECT_EQ(ref.component->capabilities, TENON_CAP_HOGWILD);
  const auto after = registry.plugins();
  const PluginStatus& good = status_of(after, fixture::path("good/good"));
  EXPECT_EQ(good.state, State::kLoaded);
  EXPECT_EQ(good.sha256.size(), 64u);
  EXPECT_EQ(good.abi.rfind("epoch 0, ", 0), 0u) << good.abi;
  EXPECT_EQ(status_of(after, fixture::path("good/twin")).state, State::kOffered);
  EXPECT_NE(registry.descriptor("acme.good"), nullptr);
  EXPECT_EQ(registry.descriptor("zeta.twin"), nullptr);
}

TEST(Registry, MakesComponentsFromOptions) {
  Registry registry;
  registry.discover_only({fixture::path("good/good").string()});
  FakeHost host(2);
  {
    auto made = fixture::make(registry, "tally", "start = 3\n[inner]\ntype = 'acme/twin'\n", host);
    EXPECT_EQ(made.toy.id(), "counter");
    EXPECT_EQ(made.toy.plugin(), "acme.good");
    EXPECT_EQ(made.toy->value(), 203 + 7000);
    EXPECT_EQ(made.toy->value(), 204 + 7000);
    EXPECT_EQ(*static_cast<std::int64_t*>(made.toy.handle().query("toy.value/1")), 205);
    EXPECT_EQ(made.toy.handle().query("toy.other/1"), nullptr);

    Component<toy::Toy> moved = std::move(made.toy);
    EXPECT_FALSE(made.toy);
    EXPECT_EQ(moved->value(), 205 + 7000);
  }
  FakeHost zero(0);
  EXPECT_EQ(error_text([&] { fixture::make(registry, "counter", "start = 10", zero); }, ErrorKind::kConfig),
            "test.toml:1:9: plugin acme.good (toy.counter): start = 10 is one too many");
  EXPECT_EQ(error_text([&] { fixture::make(registry, "counter", "start = 9", zero); }, ErrorKind::kPlugin),
            "plugin acme.good (toy.counter, rank 0): nine");
  EXPECT_EQ(error_text([&] { fixture::make(registry, "counter", "start = -10", zero); }, ErrorKind::kPlugin),
            "plugin acme.good (toy.counter, rank 0): threw an object that is not a std::exception");
}

TEST(Registry, TwoPluginsWithOneIdAreNamedAndToldApart) {
  Registry registry;
  registry.discover_only({fixture::path("good/good").string(), fixture::path("good/twin").string()});
  EXPECT_EQ(error_text([&] { registry.find("toy/1", "twin"); }, ErrorKind::kConfig),
            "toy.twin is offered by 2 plugins: acme.good (" + fixture::path("good/good").string() +
                ") and zeta.twin (" + fixture::path("good/twin").string() +
                "). Write type = \"acme/twin\" or type = \"zeta/twin\".");
  FakeHost host;
  EXPECT_EQ(fixture::make(registry, "acme/twin", "", host).toy->value(), 7);
  EXPECT_EQ(fixture::make(registry, "zeta/twin", "", host).toy->value(), 8);
}

TEST(Registry, OnePluginIdInTwoFilesOfOneFolderIsRefusedForBoth) {
  const fixture::Folder folder("copy");
  const fs::path copy = folder.path() / "copy.so", good = folder.path() / "good.so";
  fs::copy_file(fixture::path("good/good"), good);
  fs::copy_file(good, copy);
  Registry registry;
  registry.discover_only({folder.path().string(), good.string()});
  const auto plugins = registry.plugins();
  ASSERT_EQ(plugins.size(), 2u);  // the same file twice is one file
  const std::string both = "plugin id 'acme.good' is offered by two files: " + copy.string() +
                           " (1.2.3) and " + good.string() +
                           " (1.2.3). Remove one of them. No plugin code was run.";
  EXPECT_EQ(status_of(plugins, good).reason, "Cannot load '" + good.string() + "': " + both);
  EXPECT_EQ(status_of(plugins, copy).reason, "Cannot load '" + copy.string() + "': " + both);
  EXPECT_EQ(error_text([&] { registry.find("toy/1", "counter"); }, ErrorKind::kPlugin),
            "toy.counter is offered, but its plugin failed: Cannot load '" + copy.string() + "': " + both +
                "\nCannot load '" + good.string() + "': " + both);
}

TEST(Registry, TheFirstPlaceServesAPluginId) {
  const fixture::Folder first("first"), second("second"), third("third");
  const std::string name = "good.so";
  for (const fixture::Folder* folder : {&first, &second, &third})
    fs::copy_file(fixture::path("good/good"), folder->path() / name);
  const auto file_in = [&](const fixture::Folder& folder) { return (folder.path() / name).string(); };
  struct Case {
    std::vector<const fixture::Folder*> configured, variable;
  };
  const Case cases[] = {
      {{&first, &second}, {&third}}, {{&second}, {&first, &third}}, {{}, {&third, &first, &second}}};
  for (const Case& c : cases) {
    std::vector<std::string> configured, expected;
    std::string variable;
    for (const fixture::Folder* folder : c.configured) configured.push_back(folder->path().string());
    for (const fixture::Folder* folder : c.configured) expected.push_back(file_in(*folder));
    for (const fixture::Folder* folder : c.variable) variable += folder->path().string() + ":";
    for (const fixture::Folder* folder : c.variable) expected.push_back(file_in(*folder));
    ::setenv("TENON_PLUGIN_PATH", variable.c_str(), 1);
    Registry registry;
    registry.discover(configured);
    ::unsetenv("TENON_PLUGIN_PATH");
    EXPECT_EQ(registry.find("toy/1", "counter").file, expected[0]);
    EXPECT_EQ(registry.find("toy/1", "acme.good/counter").file, expected[0]);
    const auto plugins = registry.plugins();
    EXPECT_EQ(status_of(plugins, expected[0]).state, State::kLoaded);
    const std::string origin = c.configured.empty() ? "TENON_PLUGIN_PATH" : "[plugins] paths";
    for (std::size_t i = 1; i < expected.size(); ++i) {
      const PluginStatus& hidden = status_of(plugins, expected[i]);
      EXPECT_EQ(hidden.state, State::kHidden);
      EXPECT_EQ(hidden.reason, "acme.good 1.2.3 (" + expected[i] + ", " + hidden.origin +
                                   ") is hidden by 1.2.3 (" + expected[0] + ", " + origin +
                                   "): the first place that has a plugin id serves it");
    }
  }
}

TEST(Registry, AMissPrintsEveryPlace) {
  const fixture::Folder folder("place");
  ::setenv("TENON_PLUGIN_PATH", ("relative/path::" + folder.path().string()).c_str(), 1);
  Registry registry;
  registry.discover({"/no/such/folder", fixture::path("good/twin").string()});
  const std::string message = error_text([&] { registry.find("toy/1", "twim"); }, ErrorKind::kConfig);
  const std::string expected =
      "there is no toy.twim; did you mean 'twin'? Offered: twin. Places searched:"
      "\n  [plugins] paths: /no/such/folder: does not exist"
      "\n  [plugins] paths: " +
      fixture::path("good/twin").string() +
      ": a file"
      "\n  TENON_PLUGIN_PATH: relative/path: skipped: write an absolute path"
      "\n  TENON_PLUGIN_PATH: " +
      folder.path().string() +
      ": 0 plugin files"
      "\n  install folder: ";
  EXPECT_EQ(message.substr(0, expected.size()), expected);
  EXPECT_NE(message.find("/lib/tenon/plugins", expected.size()), std::string::npos);
}

TEST(Registry, TheWorkingDirectoryIsNotAPlace) {
  const fs::path before = fs::current_path();
  fs::current_path(fs::path(FIXTURES) / "good");
  ::setenv("TENON_PLUGIN_PATH", ":", 1);
  Registry registry;
  registry.discover({});
  fs::current_path(before);
  EXPECT_TRUE(registry.ids("toy/1").empty());
  EXPECT_EQ(registry.places().find("/good"), std::string::npos) << registry.places();
  EXPECT_NE(registry.places().find("\n  TENON_PLUGIN_PATH: not set"), std::string::npos) << registry.places();
}

TEST(Registry, BrokenFilesAreListedAndStopNothing) {
  Registry registry;
  registry.discover_only({std::string(FIXTURES) + "/bad", fixture::path("good/good").string()});
  EXPECT_EQ(registry.find("toy/1", "counter").plugin, "acme.good");
  const auto plugins = registry.plugins();
  EXPECT_EQ(status_of(plugins, fixture::path("bad/no_section")).state, State::kFailed);
  EXPECT_EQ(status_of(plugins, fixture::path("bad/new_epoch")).state, State::kFailed);
  EXPECT_EQ(status_of(plugins, fixture::path("bad/throws_in_init")).state, State::kOffered);
  // Failing on load is final, and the reason stays.
  const std::string text = error_text([&] { registry.find("toy/1", "shy"); }, ErrorKind::kPlugin);
  EXPECT_EQ(text, status_of(registry.plugins(), fixture::path("bad/bad_schema")).reason);
  EXPECT_EQ(error_text([&] { registry.find("toy/1", "shy"); }, ErrorKind::kPlugin),
            "toy.shy is offered, but its plugin failed: " + text);
}

TEST(Registry, LaterKindIsRefusedByName) {
  Registry registry;
  registry.discover_only({fixture::path("good/next_kind").string()});
  EXPECT_EQ(
      error_text([&] { registry.find("toy/1", "later"); }, ErrorKind::kConfig),
      "toy.later of plugin acme.later (" + fixture::path("good/next_kind").string() +
          ") is of kind toy/2, this program knows toy/1. Use a version of the plugin that offers toy/1.");
}

TEST(Registry, FrozenServesWhatIsLoadedAndNothingElse) {
  Registry registry;
  registry.discover_only({fixture::path("good/good").string(), fixture::path("good/twin").string()});
  registry.find("toy/1", "counter");
  registry.freeze();
  FakeHost host;
  EXPECT_EQ(fixture::make(registry, "counter", "start = 1", host).toy->value(), 1);
  EXPECT_EQ(error_text([&] { registry.find("toy/1", "zeta/twin"); }, ErrorKind::kRun),
            "the registry is frozen after start: " + fixture::path("good/twin").string() +
                " is not loaded any more");
  EXPECT_EQ(error_text([&] { registry.discover({}); }, ErrorKind::kRun),
            "the registry is frozen after start: no more plugins are discovered");
}

TEST(Registry, ShutdownCallsEachPluginOnce) {
  Registry registry;
  registry.discover_only({fixture::path("good/good").string()});
  registry.find("toy/1", "counter");
  EXPECT_STREQ(std::getenv("TENON_TEST_GOOD"), "initialised");
  registry.shutdown();
  EXPECT_STREQ(std::getenv("TENON_TEST_GOOD"), "shut down");
  ::setenv("TENON_TEST_GOOD", "untouched", 1);
  registry.shutdown();
  EXPECT_STREQ(std::getenv("TENON_TEST_GOOD"), "untouched");
}

// A plugin that is linked into the program.

constexpr const char* kAliases[] = {"counter", nullptr};

class Linked final : public toy::Plain {
 public:
  static constexpr ComponentInfo kInfo{.id = "linked", .summary = "linked in", .aliases = kAliases};
  using Plain::Plain;
};

using Glue =
    detail::PluginGlue<PluginInfo{.id = "test.linked", .version = "0.0.1", .summary = "linked in"}, Linked>;
constexpr auto kText = Glue::abi_text();
constexpr tenon_plugin_v1_t kPlugin = Glue::descriptor(kText.data());

TEST(Registry, BuiltInPluginsAreAllOrNothing) {
  Registry registry;
  tenon_plugin_v1_t broken = kPlugin;
  broken.summary = nullptr;
  EXPECT_EQ(error_text([&] { registry.add_builtin(broken); }, ErrorKind::kPlugin),
            "Cannot add a built-in plugin: its descriptor is wrong: summary is missing.");
  EXPECT_TRUE(registry.plugins().empty());

  broken = kPlugin;
  broken.init = [](const tenon_host_v1*, tenon_error* err) {
    std::snprintf(err->message, sizeof err->message, "not today");
    return 1;
  };
  EXPECT_EQ(error_text([&] { registry.add_builtin(broken); }, ErrorKind::kPlugin),
            "Cannot load 'built in': its init failed: plugin test.linked: not today");
  EXPECT_TRUE(registry.plugins().empty());

  registry.add_builtin(kPlugin);
  FakeHost host;
  EXPECT_EQ(fixture::make(registry, "linked", "", host).toy->value(), 7);
  EXPECT_EQ(registry.find("toy/1", "counter").plugin, "test.linked");
  EXPECT_EQ(error_text([&] { registry.add_builtin(kPlugin); }, ErrorKind::kPlugin),
            "Cannot load 'built in': plugin id 'test.linked' is offered by two files: built in (0.0.1) and "
            "built in (0.0.1). "
            "Remove one of them. No plugin code was run.");
}

TEST(Registry, APluginIsLoadedOnlyWithThoseThatItNeeds) {
  const auto added = [](const char* need) {
    static const char* needs[2];
    needs[0] = need;
    Registry registry;
    registry.discover_only({fixture::path("good/good").string()});
    tenon_plugin_v1_t plugin = linked_twin;
    plugin.needs = needs;
    try {
      registry.add_builtin(plugin);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const std::vector<PluginStatus> there = [] {
    Registry registry;
    registry.discover_only({fixture::path("good/good").string()});
    return registry.plugins();
  }();
  const std::string id = there.at(0).id, version = there.at(0).version;
  EXPECT_EQ(added(id.c_str()), "");
  EXPECT_EQ(added((id + " >= " + version).c_str()), "");
  EXPECT_THAT(added((id + " >= 99").c_str()),
              ::testing::HasSubstr("it needs the plugin '" + id + " >= 99', and " + there.at(0).file +
                                   " is version " + version));
  EXPECT_THAT(added("acme.gone >= 1"),
              ::testing::HasSubstr("it needs the plugin 'acme.gone >= 1', which is not there. "
                                   "Places searched:\n  given: "));
  EXPECT_THAT(added("gone > 1"), ::testing::HasSubstr("it needs 'gone > 1', which is not of the form"));
}

TEST(Registry, TheMacroServesLinkedPluginsToo) {
  Registry registry;
  registry.add_builtin(linked_twin);
  EXPECT_EQ(registry.plugins()[0].file, "built in");
  FakeHost host;
  EXPECT_EQ(fixture::make(registry, "twin", "", host).toy->value(), 8);
}

}  // namespace
}  // namespace tenon
