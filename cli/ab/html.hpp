// Building blocks of the report page: tables that scroll, downloads, drawings in a wide and a narrow version.
// Text passes escape_html here; names ending in `_html` are markup already.
#pragma once

#include "ab/charts.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::ab {

struct TableColumn {
  std::string head;
  bool is_number = false;  ///< right-aligned, digits of equal width
};

struct TableRow {
  std::vector<std::string> cells_html;
  bool strong = false;
};

/// A table in a box that scrolls sideways on narrow screens; the first column is the row's heading.
/// `css_class` "list" keeps a table of names and values narrow, so that the eye finds the value.
std::string table(const std::vector<TableColumn>& columns, const std::vector<TableRow>& rows,
                  std::string_view css_class = "");

/// A link that saves csv/`file_name` beside the page.
std::string csv_link(std::string_view file_name, std::string_view label);

/// Draws at two sizes; the style sheet shows the one that fits the screen.
std::string drawing(ChartSize wide, ChartSize narrow, const std::function<std::string(ChartSize)>& draw);

/// Replaces each clipped part of a drawing (Svg::begin_clip) that equals an earlier one of the page by a
/// reference to it. Curves against steps, samples and tokens are usually the same lines under other numbers.
std::string share_drawings(std::string_view html);

/// One panel per choice, switched by radio buttons in CSS alone; printed, all panels are stacked. `group` is
/// a unique name within the page.
struct Panel {
  std::string label;
  std::string content_html;
};
std::string tabs(std::string_view group, const std::vector<Panel>& panels);

/// Arm name with the marker and colour it has in all drawings.
std::string arm_key(std::size_t arm, std::string_view name);

/// A row of keys above a drawing.
std::string legend(std::string_view keys_html);

/// A whole page: head with the style sheet, then `body_html` in its frame. No network, no script.
std::string page(std::string_view title, std::string_view body_html);

/// A name and a value for a list `<dl class="facts">`.
std::string fact(std::string_view name, std::string_view value_html);

std::string section(std::string_view title, std::string_view content_html);
std::string paragraph(std::string_view text, std::string_view css_class = "");

}  // namespace tenon::ab
