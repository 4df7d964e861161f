// A graph's table, JSON, Graphviz text and drawing, of a small graph with three equal blocks and one that
// differs.
#include "report/model_graph.hpp"
#include "report/model_drawing.hpp"
#include "report/pages.hpp"
#include "report/testing_runs.hpp"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <regex>

namespace tenon::report::model_graph_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// h.0 to h.2 are equal, h.3 is wider; each adds its input to what fc makes of it.
ModelGraph sample() {
  ModelGraph graph;
  graph.model = "blocks";
  graph.fields = {{"x", "[2, 8]", "f32"}};
  std::string before = "x";
  for (int i = 0; i < 4; ++i) {
    const std::string h = "h." + std::to_string(i), width = i < 3 ? "8" : "9";
    graph.nodes.push_back({h + ".fc",
                           "linear",
                           {before},
                           {{h + ".fc", "[2, " + width + "]", "f32"}},
                           {{h + ".fc.weight", "[" + width + ", 8]", "f32", "trained", 1234, false}},
                           {{"linear", h + ".fc.weight", 2, 8, 8, i == 3}}});
    graph.nodes.push_back(
        {h + ".sum", "residual", {before, h + ".fc"}, {{h + ".sum", "[2, 8]", "f32"}}, {}, {}});
    before = h + ".sum";
  }
  graph.elements = 4936;
  return graph;
}

TEST(ModelGraph, TextHasNodesParametersAndSites) {
  const std::string text = graph_text(sample());
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("model blocks: 8 nodes, 4,936 elements of parameters and buffers, 4 linear sites"),
            HasSubstr("h.0.sum  residual  [2, 8] f32            x, h.0.fc"),
            HasSubstr("h.3.fc.weight  h.3.fc  [9, 8]  f32    1,234     trained")));
}

TEST(ModelGraph, JsonAndGraphvizHaveEveryEdge) {
  ModelGraph graph = sample();
  graph.nodes[1].inputs[1] = "h.0.fc:1";
  const auto json = nlohmann::json::parse(graph_json(graph));
  EXPECT_EQ(json["nodes"].size(), 8U);
  EXPECT_EQ(json["nodes"][1]["inputs"][1]["name"], "h.0.fc:1");
  EXPECT_EQ(json["nodes"][0]["parameters"][0]["elements"], 1234);
  EXPECT_THAT(graph_dot(graph), HasSubstr("\"h.0.fc\" -> \"h.0.sum\";"));
}

TEST(ModelDrawing, EqualBlocksAreDrawnOnce) {
  const std::string svg = graph_svg(sample());
  EXPECT_THAT(svg, AllOf(HasSubstr("3 x  h.0 ... h.2"), HasSubstr(">h.0.sum<"), HasSubstr(">h.3.fc<"),
                         Not(HasSubstr(">h.1.fc<")), Not(HasSubstr(">h.2.sum<"))));
}

TEST(ModelDrawing, BoxesDoNotOverlapAndStayInside) {
  ModelGraph graph = sample();
  // 40 layers, hence columns; and a layer of five nodes beside each other.
  for (int i = 0; i < 40; ++i) {
    const std::string name = "tail" + std::string(1, static_cast<char>('a' + i % 26)) + (i < 26 ? "" : "x");
    graph.nodes.push_back({name, "gelu", {graph.nodes.back().name}, {{name, "[2, 8]", "f32"}}, {}, {}});
  }
  for (const char* name : {"left", "middle", "right", "far", "farther"})
    graph.nodes.push_back({name, "gelu", {"tailnx"}, {{name, "[2, 8]", "f32"}}, {}, {}});
  const std::string svg = graph_svg(graph);
  struct Rect {
    double x, y, w, h;
  };
  std::vector<Rect> boxes;
  const std::regex shape(
      R"re(class="tg-(box|site|data)" x="([^"]+)" y="([^"]+)" width="([^"]+)" height="([^"]+)")re");
  for (std::sregex_iterator it(svg.begin(), svg.end(), shape), end; it != end; ++it)
    boxes.push_back({std::stod((*it)[2]), std::stod((*it)[3]), std::stod((*it)[4]), std::stod((*it)[5])});
  ASSERT_EQ(boxes.size(), 1U + 4 + 40 + 5);
  std::smatch size;
  ASSERT_TRUE(std::regex_search(svg, size, std::regex("width=\"(\\d+)\" height=\"(\\d+)\"")));
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    EXPECT_GE(boxes[i].x, 0);
    EXPECT_LE(boxes[i].x + boxes[i].w, std::stod(size[1]));
    EXPECT_LE(boxes[i].y + boxes[i].h, std::stod(size[2]));
    for (std::size_t j = 0; j < i; ++j) {
      const bool apart = boxes[i].x + boxes[i].w <= boxes[j].x || boxes[j].x + boxes[j].w <= boxes[i].x ||
                         boxes[i].y + boxes[i].h <= boxes[j].y || boxes[j].y + boxes[j].h <= boxes[i].y;
      EXPECT_TRUE(apart) << i << " and " << j;
    }
  }
}

class ModelOfRun : public RunFolders {};

TEST_F(ModelOfRun, PageShowsTheDrawingOrTheReason) {
  const auto loaded = load_run(run("tiny"));
  EXPECT_THAT(run_page(loaded), Not(HasSubstr(">Model<")));
  EXPECT_THAT(run_page(loaded, graph_svg(sample())),
              AllOf(HasSubstr(">Model<"), HasSubstr("3 x  h.0 ... h.2")));
  EXPECT_THAT(run_page(loaded, "no data <here>"),
              AllOf(HasSubstr(">Model<"), HasSubstr("no data &lt;here&gt;")));
}

}  // namespace
}  // namespace tenon::report::model_graph_test
