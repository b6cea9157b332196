//! One panel: what it asks, and how it is drawn.

use serde_json::{Value, json};

/// The filters of all queries, by the labels that the metric has besides those of the scrape.
const FILTERS: [(&str, &str); 4] = [
    ("<process>", r#"job=~"$job", instance=~"$instance""#),
    (
        "<group>",
        r#"job=~"$job", instance=~"$instance", group=~"$group""#,
    ),
    (
        "<store>",
        r#"job=~"$job", instance=~"$instance", store=~"$store""#,
    ),
    (
        "<name>",
        r#"job=~"$job", instance=~"$instance", group=~"$group", name=~"$name""#,
    ),
];

/// How a panel is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stat,
    Lines,
    Bars,
    Heatmap,
    Table,
}

/// From this value on, this colour.
type Step = (f64, &'static str);

/// One panel.
#[derive(Debug, Clone)]
pub(crate) struct Panel {
    kind: Kind,
    title: &'static str,
    unit: &'static str,
    /// What good looks like, and what to do if it is not so.
    description: &'static str,
    /// Legends and expressions.
    queries: Vec<(&'static str, String)>,
    /// The colours, from the lowest value on.
    steps: Vec<Step>,
    columns: &'static [(&'static str, &'static str)],
}

impl Panel {
    fn new(kind: Kind, title: &'static str, unit: &'static str, description: &'static str) -> Self {
        Self {
            kind,
            title,
            unit,
            description,
            queries: Vec::new(),
            steps: vec![(f64::NEG_INFINITY, "green")],
            columns: &[],
        }
    }

    /// One number of now.
    pub(crate) fn stat(title: &'static str, unit: &'static str, description: &'static str) -> Self {
        Self::new(Kind::Stat, title, unit, description)
    }

    /// Lines over time.
    pub(crate) fn lines(
        title: &'static str,
        unit: &'static str,
        description: &'static str,
    ) -> Self {
        Self::new(Kind::Lines, title, unit, description)
    }

    /// What happened in each moment, stacked by kind: for what happens seldom.
    pub(crate) fn bars(title: &'static str, unit: &'static str, description: &'static str) -> Self {
        Self::new(Kind::Bars, title, unit, description)
    }

    /// The buckets of a histogram over time.
    pub(crate) fn heatmap(
        title: &'static str,
        unit: &'static str,
        description: &'static str,
    ) -> Self {
        Self::new(Kind::Heatmap, title, unit, description)
    }

    /// A row for each series of now: labels, and `Value`, in this order and under these headings.
    pub(crate) fn table(
        title: &'static str,
        unit: &'static str,
        description: &'static str,
        columns: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            columns,
            ..Self::new(Kind::Table, title, unit, description)
        }
    }

    /// Asks this, and calls its series so.
    pub(crate) fn query(mut self, legend: &'static str, expression: &str) -> Self {
        let filter = |text: String, (name, filter): (&str, &str)| text.replace(name, filter);
        let expression = FILTERS.into_iter().fold(expression.to_owned(), filter);
        self.queries.push((legend, expression));
        self
    }

    /// Asks for these quantiles of a histogram, over all series with the same labels `by`.
    pub(crate) fn quantiles(
        mut self,
        quantiles: &[(&'static str, f64)],
        histogram: &str,
        by: &str,
    ) -> Self {
        for (legend, quantile) in quantiles {
            let by = if by.is_empty() {
                "le".to_owned()
            } else {
                format!("le, {by}")
            };
            let (name, filter) = histogram.split_once('{').expect("a filter");
            let rate = format!("rate({name}_bucket{{{filter}[$__rate_interval])");
            let expression = format!("histogram_quantile({quantile}, sum by ({by}) ({rate}))");
            self = self.query(legend, &expression);
        }
        self
    }

    /// Green below the first of these values; from each on, its colour.
    pub(crate) fn steps(mut self, steps: &[Step]) -> Self {
        self.steps.extend(steps);
        self
    }

    /// This colour below all values; without it, green.
    pub(crate) fn from(mut self, color: &'static str) -> Self {
        self.steps[0].1 = color;
        self
    }

    /// The panel as Grafana reads it.
    pub(super) fn json(&self, id: usize, place: (usize, usize, usize, usize)) -> Value {
        let (x, y, w, h) = place;
        let mut json = json!({
            "id": id,
            "type": self.kind.grafana(),
            "title": self.title,
            "description": self.description,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "gridPos": {"x": x, "y": y, "w": w, "h": h},
            "pluginVersion": "10.3.0",
            "fieldConfig": {"defaults": self.defaults(), "overrides": []},
            "options": self.options(),
            "targets": self.targets(),
        });
        if self.kind == Kind::Table {
            json["transformations"] = self.transformations();
        }
        json
    }

    fn defaults(&self) -> Value {
        let steps = self.steps.iter();
        // The first has no value. JSON has no infinite numbers, so this one becomes `null`.
        let steps: Vec<Value> = steps
            .map(|(value, color)| json!({"color": color, "value": value}))
            .collect();
        let color = match self.kind {
            Kind::Stat => "thresholds",
            _ => "palette-classic",
        };
        let mut defaults = json!({
            "unit": self.unit,
            "color": {"mode": color},
            "thresholds": {"mode": "absolute", "steps": steps},
        });
        if self.kind == Kind::Stat && self.unit == "short" {
            // An increase is an estimate, and what is counted is whole.
            defaults["decimals"] = 0.into();
        }
        if let Some(custom) = self.kind.custom() {
            defaults["custom"] = custom;
        }
        if matches!(self.kind, Kind::Lines | Kind::Bars) {
            defaults["custom"]["thresholdsStyle"] = match self.steps.len() == 1 {
                true => json!({"mode": "off"}),
                false => json!({"mode": "line"}),
            };
        }
        defaults
    }

    fn options(&self) -> Value {
        match self.kind {
            Kind::Stat => json!({
                "colorMode": "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto",
                "textMode": "auto", "wideLayout": true,
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
            }),
            Kind::Lines | Kind::Bars => json!({
                "legend": {"calcs": ["lastNotNull", "max"], "displayMode": "table", "placement": "bottom", "showLegend": true},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }),
            Kind::Heatmap => json!({
                "calculate": false, "cellGap": 1,
                "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5, "fill": "dark-orange"},
                "exemplars": {"color": "rgba(255,0,255,0.7)"},
                "filterValues": {"le": 1e-9},
                "legend": {"show": true}, "rowsFrame": {"layout": "auto"},
                "tooltip": {"mode": "single", "showColorScale": false, "yHistogram": false},
                "yAxis": {"axisPlacement": "left", "reverse": false, "unit": self.unit},
            }),
            Kind::Table => {
                json!({"cellHeight": "sm", "showHeader": true, "footer": {"show": false}})
            }
        }
    }

    fn targets(&self) -> Value {
        let letters = 'A'..='Z';
        let targets = self
            .queries
            .iter()
            .zip(letters)
            .map(|((legend, expression), letter)| {
                let mut target = json!({
                    "datasource": {"type": "prometheus", "uid": "${datasource}"},
                    "editorMode": "code",
                    "expr": expression,
                    "legendFormat": legend,
                    "range": self.kind != Kind::Table,
                    "instant": self.kind == Kind::Table,
                    "refId": letter.to_string(),
                });
                match self.kind {
                    Kind::Heatmap => target["format"] = "heatmap".into(),
                    Kind::Table => target["format"] = "table".into(),
                    _ => target["format"] = "time_series".into(),
                }
                target
            });
        targets.collect()
    }

    /// The columns, and no others.
    fn transformations(&self) -> Value {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let order = names.iter().enumerate();
        let order: serde_json::Map<_, _> = order
            .map(|(index, name)| ((*name).to_owned(), index.into()))
            .collect();
        let headings = self.columns.iter();
        let headings: serde_json::Map<_, _> = headings
            .map(|(name, heading)| ((*name).to_owned(), (*heading).into()))
            .collect();
        json!([
            {"id": "filterFieldsByName", "options": {"include": {"names": names}}},
            {"id": "organize", "options": {"excludeByName": {}, "indexByName": order, "renameByName": headings}},
        ])
    }

    /// Its size on a grid that is 24 wide.
    pub(super) const fn size(&self) -> (usize, usize) {
        match self.kind {
            Kind::Stat => (4, 4),
            Kind::Table => (12, 8),
            _ => (8, 8),
        }
    }
}

impl Kind {
    const fn grafana(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::Lines | Self::Bars => "timeseries",
            Self::Heatmap => "heatmap",
            Self::Table => "table",
        }
    }

    /// The options of a series.
    fn custom(self) -> Option<Value> {
        match self {
            Self::Lines => Some(json!({
                "drawStyle": "line", "fillOpacity": 10, "lineWidth": 1, "showPoints": "never", "spanNulls": false,
                "axisSoftMin": 0, "stacking": {"group": "A", "mode": "none"},
            })),
            Self::Bars => Some(json!({
                "drawStyle": "bars", "fillOpacity": 80, "lineWidth": 0, "showPoints": "never", "spanNulls": false,
                "axisSoftMin": 0, "stacking": {"group": "A", "mode": "normal"},
            })),
            Self::Table => {
                Some(json!({"align": "auto", "cellOptions": {"type": "auto"}, "inspect": false}))
            }
            Self::Stat | Self::Heatmap => None,
        }
    }
}
