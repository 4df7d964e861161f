#include "plugin/lookup.hpp"

#include <tenon/error.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tenon::plugin {
namespace {

using State = PluginStatus::State;

PluginStatus status(const std::string& id, std::vector<PluginStatus::Offer> offers,
                    State state = State::kOffered) {
  PluginStatus result;
  result.state = state;
  result.id = id;
  result.file = "/p/" + id + ".so";
  result.offers = std::move(offers);
  if (state == State::kFailed) result.reason = "Cannot load '" + result.file + "': it is broken.";
  return result;
}

const std::vector<PluginStatus> kPlugins = {
    status("acme.lion", {{"optimizer/1", "lion", {"sign"}}, {"schedule/1", "lion", {}}}),
    status("zeta.lion", {{"optimizer/1", "lion", {}}, {"optimizer/1", "muon", {"sgd"}}}),
    status("zeta.more", {{"optimizer/1", "muon", {}}, {"optimizer/2", "later", {}}}),
    status("tenon.basic", {{"optimizer/1", "sgd", {}}, {"optimizer/1", "adapt", {}}}),
    status("bad.adam", {{"optimizer/1", "adapt", {}}, {"optimizer/1", "adabad", {}}}, State::kFailed),
};

TEST(Lookup, Choices) {
  struct Case {
    const char *kind, *type, *plugin;
    std::size_t offer;
  };
  const Case cases[] = {
      {"schedule/1", "lion", "acme.lion", 1},             // the kind tells them apart
      {"optimizer/1", "acme/lion", "acme.lion", 0},       // by vendor
      {"optimizer/1", "zeta.lion/lion", "zeta.lion", 0},  // by plugin id
      {"optimizer/1", "zeta.more/muon", "zeta.more", 0},
      {"optimizer/1", "sign", "acme.lion", 0},       // by alias
      {"optimizer/1", "acme/sign", "acme.lion", 0},  // by vendor and alias
      {"optimizer/1", "sgd", "tenon.basic", 0},      // an id wins over another's alias
      {"optimizer/1", "zeta/sgd", "zeta.lion", 1},
      {"optimizer/1", "adapt", "tenon.basic", 1},  // a working plugin over a failed one
  };
  for (const Case& c : cases) {
    const Choice choice = choose(kPlugins, c.kind, c.type, {});
    EXPECT_EQ(kPlugins[choice.plugin].id, c.plugin) << c.type;
    EXPECT_EQ(choice.offer, c.offer) << c.type;
  }
}

TEST(Lookup, Refusals) {
  struct Case {
    const char *kind, *type;
    ErrorKind error;
    const char* message;
  };
  const Case cases[] = {
      {"optimizer/1", "lion", ErrorKind::kConfig,
       "optimizer.lion is offered by 2 plugins: acme.lion (/p/acme.lion.so) and zeta.lion (/p/zeta.lion.so). "
       "Write type "
       "= \"acme/lion\" or type = \"zeta/lion\"."},
      {"optimizer/1", "zeta/muon", ErrorKind::kConfig,
       "optimizer.muon is offered by 2 plugins: zeta.lion (/p/zeta.lion.so) and zeta.more (/p/zeta.more.so). "
       "Write type "
       "= \"zeta.lion/muon\" or type = \"zeta.more/muon\"."},
      {"optimizer/1", "adabad", ErrorKind::kPlugin,
       "optimizer.adabad is offered, but its plugin failed: Cannot load '/p/bad.adam.so': it is broken."},
      {"optimizer/1", "later", ErrorKind::kConfig,
       "optimizer.later of plugin zeta.more (/p/zeta.more.so) is of kind optimizer/2, this program knows "
       "optimizer/1. "
       "Use a version of the plugin that offers optimizer/1."},
      {"optimizer/1", "adapd", ErrorKind::kConfig,
       "there is no optimizer.adapd; did you mean 'adapt'? Offered: adapt, lion, muon, sgd. Places "
       "searched:\n  here: nothing\n  failed: Cannot load '/p/bad.adam.so': it is broken."},
      {"optimizer/1", "acme/muon", ErrorKind::kConfig,
       "there is no optimizer.muon of 'acme'; did you mean 'zeta.lion/muon'? Offered: adapt, lion, muon, "
       "sgd. Places "
       "searched:\n  "
       "here: nothing\n  failed: Cannot load '/p/bad.adam.so': it is broken."},
      {"simulator/1", "burgers", ErrorKind::kConfig,
       "there is no simulator.burgers. No plugin offers a simulator. Places searched:\n  here: nothing\n  "
       "failed: Cannot "
       "load '/p/bad.adam.so': it is broken."},
      {"device/1", "far", ErrorKind::kConfig,
       "there is no device.far here: this build leaves out its plugin tenon_device_far. Add it with `cmake "
       "--build "
       "BUILD --target tenon_device_far` (BUILD: the folder of this build), or build with the preset "
       "`package`."},
  };
  const std::vector<SearchPlace> places = {
      {"here",
       {},
       "nothing",
       {},
       {{"device.other", "tenon_device_other"}, {"device.far", "tenon_device_far"}}}};
  for (const Case& c : cases) {
    try {
      choose(kPlugins, c.kind, c.type, places);
      FAIL() << c.type;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), c.error) << c.type;
      EXPECT_STREQ(error.what(), c.message);
    }
  }
}

TEST(Lookup, AFolderSaysWhatItsBuildLeftOut) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "tenon_left_out";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "left_out") << "device.far tenon_device_far\ntransport.far tenon_device_far\n";
  SearchPlace place{"here", folder, "", {}};
  visit(place);
  std::filesystem::remove_all(folder);
  ASSERT_EQ(place.left_out.size(), 2u);
  EXPECT_EQ(place.left_out[1].component, "transport.far");
  EXPECT_EQ(place.left_out[1].plugin, "tenon_device_far");
  EXPECT_EQ(place.outcome, "0 plugin files");
}

}  // namespace
}  // namespace tenon::plugin
