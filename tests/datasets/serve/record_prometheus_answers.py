"""Record the answers of a real Prometheus to the queries of `test_promql.py`.

    python tests/datasets/serve/record_prometheus_answers.py /path/to/prometheus 3.9.1

It writes `prometheus_answers.json` beside this file: the samples, and each query with its answer.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

FILE = Path(__file__).with_name("prometheus_answers.json")
STEPS = 10
"""A range query covers minutes 1 to 10 of the samples."""
QUERIES = """
reqs_total
reqs_total{svc=~"a|b",code!="200"}
{__name__=~"temp|up",svc!~"b"}
temp offset 90s
temp @ end()
reqs_total{code="200"}[50s]
rate(reqs_total[1m])
rate(reqs_total[37s])
increase(reqs_total[2m])
irate(reqs_total[1m])
delta(temp[3m])
idelta(temp[3m])
deriv(temp[3m])
changes(up[5m])
resets(reqs_total[5m])
avg_over_time(temp[2m])
sum_over_time(temp[2m])
min_over_time(temp[2m])
max_over_time(temp[2m])
count_over_time(temp[2m])
last_over_time(temp[2m])
present_over_time(temp[30s])
stddev_over_time(temp[2m])
stdvar_over_time(temp[2m])
quantile_over_time(0.9, temp[2m])
sum(rate(reqs_total[1m]))
sum by (svc) (rate(reqs_total[1m]))
sum without (pod, code) (reqs_total)
avg by (svc) (temp)
min(temp)
max by (svc) (temp)
count by (code) (reqs_total)
group by (svc) (reqs_total)
stddev(temp)
stdvar by (svc) (temp)
quantile(0.3, temp)
topk(2, temp)
bottomk by (svc) (1, temp)
topk(1, sum by (svc) (rate(reqs_total[1m])))
histogram_quantile(0.5, rate(lat_seconds_bucket[1m]))
histogram_quantile(0.99, sum by (le) (rate(lat_seconds_bucket[1m])))
histogram_quantile(0.9, sum by (svc, le) (increase(lat_seconds_bucket[2m])))
histogram_quantile(1, lat_seconds_bucket)
rate(lat_seconds_sum[1m]) / rate(lat_seconds_count[1m])
temp * 9 / 5 + 32
100 - temp % 7
2 ^ (temp / 10)
-temp
temp > 20
temp > bool 20
temp == temp
temp < on (svc) group_left max by (svc) (temp)
sum by (svc) (rate(reqs_total{code="500"}[1m])) / sum by (svc) (rate(reqs_total[1m]))
sum by (svc) (rate(reqs_total{code="500"}[1m])) / on (svc) sum by (svc) (rate(reqs_total[1m])) > 0.05
temp * on (pod) group_left (zone) info
info * on (pod) group_right (zone) temp
temp and on (pod) info{zone="x"}
temp unless on (pod) info{zone="x"}
up == 0 or temp > 25
reqs_total / ignoring (code) group_left sum without (code) (reqs_total)
abs(temp - 20)
ceil(temp)
floor(temp)
round(temp, 5)
sqrt(temp)
ln(temp)
exp(temp / 10)
sgn(temp - 20)
clamp(temp, 15, 22)
clamp_min(temp, 18)
clamp_max(temp, 18)
vector(3)
scalar(sum(temp))
time() - 5
timestamp(temp)
absent(nothing{svc="x"})
absent(temp)
sort(temp)
sort_desc(sum by (svc) (temp))
label_replace(temp, "host", "$1-$2", "pod", "(.)(.*)")
label_join(temp, "id", "/", "svc", "pod")
max_over_time(rate(reqs_total[1m])[3m:30s])
avg_over_time((temp > 18)[4m:20s])
sum(short)
short
rate(short[2m])
1 + 2 * 3
1 > bool 2
reqs_total and
sum(rate(reqs_total))
temp + on (svc) reqs_total
label_replace(temp, "svc", "same", "svc", ".*") + 1
""".strip().split("\n")


def build_samples() -> list[dict[str, Any]]:
    """Return series of 11 minutes with resets, gaps, a short-lived series and uneven times."""
    draw = random.Random(1)
    series: list[dict[str, Any]] = []

    def add(name: str, samples: list[tuple[float, float]], **labels: str) -> None:
        series.append({"labels": {"__name__": name, **labels}, "samples": samples})

    for pod, svc in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        offset = draw.randrange(5000) / 1000
        times = [round(offset + 5 * number, 3) for number in range(132)]
        for code, most in (("200", 9), ("500", 2)):
            count, counts = 0, []
            for number in range(len(times)):
                count = 0 if (pod, number) == ("a2", 60) else count + draw.randint(0, most)
                counts.append(count)
            add("reqs_total", list(zip(times, counts, strict=True)), pod=pod, svc=svc, code=code)
        kept = [number for number in range(0, 132, 3) if not (pod == "b1" and 40 < number < 110)]
        add("temp", [(times[number], draw.randrange(1500, 3000) / 100) for number in kept], pod=pod, svc=svc)
        add("up", [(times[number], float(number % 20 != 0)) for number in range(0, 132, 4)], pod=pod, svc=svc)
        add("info", [(times[number], 1.0) for number in range(0, 132, 6)], pod=pod, zone="x" if svc == "a" else "y")
        bounds = {"0.05": 0, "0.1": 0, "0.5": 0, "1": 0, "+Inf": 0}
        rows: dict[str, list[tuple[float, float]]] = {bound: [] for bound in bounds}
        total, sums = 0.0, []
        for number in range(0, 132, 3):
            for _ in range(draw.randint(0, 6)):
                value = draw.expovariate(4)
                total += value
                for bound in bounds:
                    bounds[bound] += value <= float(bound)
            for bound, count in bounds.items():
                rows[bound].append((times[number], float(count)))
            sums.append((times[number], round(total, 6)))
        for bound, row in rows.items():
            add("lat_seconds_bucket", row, pod=pod, svc=svc, le=bound)
        add("lat_seconds_sum", sums, pod=pod, svc=svc)
        add("lat_seconds_count", rows["+Inf"], pod=pod, svc=svc)
    add("short", [(100.0 + 5 * number, number * 2.0) for number in range(12)], pod="c1", svc="c")
    return series


def exposition(series: list[dict[str, Any]], start_s: int) -> str:
    """Return all samples in the text format, each with its time."""
    lines = []
    for item in series:
        labels = dict(item["labels"])
        name = labels.pop("__name__")
        inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
        lines += [f"{name}{{{inside}}} {value} {round(1000 * (start_s + at))}" for at, value in item["samples"]]
    return "\n".join(lines) + "\n"


def ask(address: str, path: str, **parameters: Any) -> Any:
    """Return the document of an answer, errors included."""
    try:
        with urlopen(f"{address}/api/v1/{path}?{urlencode(parameters)}", timeout=10) as answer:
            return json.load(answer)
    except OSError as error:
        body = getattr(error, "read", bytes)()
        return json.loads(body) if body else None


def shorten(document: Any) -> Any:
    """Return the type and the rows of an answer, or the type of its error."""
    if document["status"] != "success":
        return {"error": document["errorType"]}
    kind, result = document["data"]["resultType"], document["data"]["result"]

    if kind in ("scalar", "string"):
        return {"type": kind, "result": result}
    rows = [
        [
            {key: value for key, value in row["metric"].items() if key not in ("job", "instance")},
            row["value" if kind == "vector" else "values"],
        ]
        for row in result
    ]
    return {"type": kind, "result": rows}


def main(binary: str, version: str) -> None:
    """Start Prometheus on loopback, let it read the samples, and write its answers."""
    series, start_s = build_samples(), int(time.time()) // 60 * 60 - 720
    bodies = [exposition(series, start_s).encode()]

    class Exporter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = bodies.pop() if bodies else b"\n"
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    exporter = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        target = f"127.0.0.1:{exporter.server_address[1]}"
        relabel = "[{regex: job|instance, action: labeldrop}]"
        Path(folder, "prometheus.yml").write_text(
            "global: {scrape_interval: 3s, scrape_timeout: 3s}\n"
            "storage: {tsdb: {out_of_order_time_window: 1h}}\n"
            f"scrape_configs: [{{job_name: x, metric_relabel_configs: {relabel}, "
            f"static_configs: [{{targets: ['{target}']}}]}}]\n"
        )
        port = 31790
        options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        command = [binary, *options, f"--web.listen-address=127.0.0.1:{port}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        address = f"http://127.0.0.1:{port}"
        try:
            while not ((ask(address, "query", query="temp", time=start_s + 600) or {}).get("data") or {}).get("result"):
                time.sleep(0.5)
            window = {"start": start_s + 60, "end": start_s + 60 * STEPS, "step": 60}
            answers = [
                {
                    "query": query,
                    "instant": shorten(ask(address, "query", query=query, time=start_s + 600)),
                    "range": shorten(ask(address, "query_range", query=query, **window)),
                }
                for query in QUERIES
            ]
        finally:
            process.terminate()
            process.wait()
    content = {"version": version, "start_s": start_s, "series": series, "answers": answers}
    FILE.write_text(json.dumps(content, separators=(",", ":")) + "\n")
    print(f"{len(answers)} queries answered by Prometheus {version}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
