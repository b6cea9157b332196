//! A board: rows of panels, and the choices at its head.

use serde_json::{Value, json};

use super::panel::Panel;

/// A choice at the head of a board.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    name: &'static str,
    label: &'static str,
    /// The series whose values of this label are offered.
    series: &'static str,
}

impl Choice {
    pub(crate) const fn new(name: &'static str, label: &'static str, series: &'static str) -> Self {
        Self {
            name,
            label,
            series,
        }
    }

    fn json(self) -> Value {
        let query = format!("label_values({}, {})", self.series, self.name);
        json!({
            "name": self.name,
            "label": self.label,
            "type": "query",
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "definition": query,
            "query": {"query": query, "refId": format!("choice-{}", self.name)},
            "multi": true,
            "includeAll": true,
            "allValue": ".+",
            "current": {"selected": true, "text": ["All"], "value": ["$__all"]},
            "hide": 0,
            "options": [],
            // On each change of the time range.
            "refresh": 2,
            "regex": "",
            "skipUrlSync": false,
            "sort": 1,
        })
    }
}

/// A board.
#[derive(Debug, Clone)]
pub(crate) struct Board {
    /// Its file, and its address in Grafana.
    pub(crate) uid: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    pub(crate) choices: Vec<Choice>,
    pub(crate) rows: Vec<(&'static str, Vec<Panel>)>,
}

impl Board {
    /// The text of its file.
    pub(crate) fn text(&self) -> String {
        let json = serde_json::to_string_pretty(&self.json()).unwrap();
        json + "\n"
    }

    fn json(&self) -> Value {
        let choices = self.choices.iter().map(|choice| choice.json());
        let choices: Vec<Value> = std::iter::once(datasource()).chain(choices).collect();
        json!({
            "annotations": {"list": [alerts()]},
            "description": self.description,
            "editable": false,
            "fiscalYearStartMonth": 0,
            "graphTooltip": 1,
            "id": null,
            "links": [{
                "asDropdown": false, "icon": "external link", "includeVars": true, "keepTime": true,
                "tags": ["leasehold"], "targetBlank": false, "title": "", "tooltip": "", "type": "dashboards", "url": "",
            }],
            "liveNow": false,
            "panels": self.panels(),
            "refresh": "30s",
            "schemaVersion": 39,
            "tags": ["leasehold"],
            "templating": {"list": choices},
            "time": {"from": "now-1h", "to": "now"},
            "timepicker": {},
            "timezone": "",
            "title": self.title,
            "uid": self.uid,
            "version": 1,
            "weekStart": "",
        })
    }

    /// The panels from left to right, in rows that are as high as their highest panel.
    fn panels(&self) -> Vec<Value> {
        let (mut panels, mut y) = (Vec::new(), 0);
        for (title, row) in &self.rows {
            panels.push(json!({
                "id": panels.len() + 1, "type": "row", "title": title, "collapsed": false, "panels": [],
                "gridPos": {"x": 0, "y": y, "w": 24, "h": 1},
            }));
            y += 1;
            let (mut x, mut height) = (0, 0);
            for panel in row {
                let (w, h) = panel.size();
                if x + w > 24 {
                    (x, y) = (0, y + height);
                }
                panels.push(panel.json(panels.len() + 1, (x, y, w, h)));
                (x, height) = (x + w, h);
            }
            y += height;
        }
        panels
    }
}

/// The choice of the data source, which makes a board import and provision without an edit.
fn datasource() -> Value {
    json!({
        "name": "datasource", "label": "Data Source", "type": "datasource", "query": "prometheus",
        "current": {}, "hide": 0, "includeAll": false, "multi": false, "options": [], "refresh": 1, "regex": "",
        "skipUrlSync": false,
    })
}

/// Our alerts, as marks in every panel.
fn alerts() -> Value {
    json!({
        "name": "Alerts",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "enable": true,
        "hide": false,
        "expr": r#"ALERTS{alertname=~"Leasehold.*", alertstate="firing"}"#,
        "iconColor": "red",
        "titleFormat": "{{alertname}}",
        "textFormat": "{{job}} {{group}} {{instance}} {{name}}",
    })
}
