from __future__ import annotations

import json

import pytest
import yaml

from faultset.datasets.tools.toolset import EpisodeTools
from faultset.datasets.views import EpisodeView


def ask(tools: EpisodeTools, command: str) -> tuple[str, list[str]]:
    answer = tools.call("kubectl", {"command": f"kubectl {command}"})
    return answer.status, answer.text.split("\n")[:-1]


def test_pods_are_listed_in_the_columns_of_kubectl(tools: EpisodeTools) -> None:
    status, lines = ask(tools, "get pods -n hotel")
    assert status == "ok"
    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    geo = next(line for line in lines if line.startswith("geo-"))
    assert geo.split() == ["geo-65f959d876-zqxhz", "1/1", "Running", "1", "<unknown>"]
    starts = {line.index(word) for line in lines[1:] for word in ("Running",)}
    assert starts == {lines[0].index("STATUS")}


def test_lists_of_every_recorded_kind_have_rows(tools: EpisodeTools) -> None:
    for kind in ("pods", "deploy", "rs", "svc", "ep", "pvc", "pv", "cm", "pods,svc", "all"):
        status, lines = ask(tools, f"get {kind} -o wide")
        assert status == "ok", kind
        assert len(lines) > 1, kind


def test_a_crashing_pod_shows_its_reason_and_its_restarts(busy_tools: EpisodeTools) -> None:
    _, lines = ask(busy_tools, "get pods | grep CrashLoopBackOff")
    assert len(lines) == 1
    name = lines[0].split()[0]
    _, text = ask(busy_tools, f"describe pod {name}")
    assert any("Last State:     Terminated" in line for line in text)
    assert any("BackOff" in line for line in text)


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("get deploy geo -o jsonpath='{.spec.template.spec.containers[0].image}'", "faultset/app:1.0.0"),
        ("get svc geo -o jsonpath='{.spec.ports[*].port}'", "8083"),
        ("get pods -o name | head -1", "pod/consul-54b5c59544-n7l2q"),
        ("get pods --no-headers | wc -l", "18"),
        ("get pods -o name | tail -n -1 | wc -l", "1"),
        ("get pods -o name | tail -n +1 | wc -l", "18"),
        ("get pods -o name | head -n -1 | wc -l", "17"),
        ("get pods -o name | head -n +1 | wc -l", "1"),
        ("get pods -o custom-columns=N:.metadata.name | tail -1", "user-775cb4bdfc-6frx7"),
        ("get pods --sort-by=.status.containerStatuses[0].restartCount -o name | tail -1", "pod/geo-65f959d876-zqxhz"),
        ("get pod -l io.kompose.service=geo -o name", "pod/geo-65f959d876-zqxhz"),
        ("get events --field-selector reason=Killing --no-headers | wc -l", "1"),
        ("config current-context", "recording"),
        ("rollout status deploy/geo", 'deployment "geo" successfully rolled out'),
        ("get pods | awk '{print $1}' | grep -c mongodb", "6"),
        ("get pods 2>/dev/null | grep 'geo-\\|user-' | grep -v mongodb | wc -l", "2"),
        ("get po -A -o wide | sort -k2 -r | tail -n 1", None),
    ],
)  # fmt: skip
def test_formats_selectors_and_filters(tools: EpisodeTools, command: str, first: str | None) -> None:
    status, lines = ask(tools, command)
    assert status == "ok", lines
    assert first is None or lines[0] == first


def test_yaml_says_that_it_has_recorded_fields_only(tools: EpisodeTools) -> None:
    _, lines = ask(tools, "get deploy geo -o yaml")
    assert lines[0] == "# recorded fields only"
    assert "kind: Deployment" in lines


def test_lines_of_a_container_s_earlier_run_are_apart(tools: EpisodeTools) -> None:
    status, before = ask(tools, "logs deploy/geo --previous")
    assert status == "ok"
    assert len(before) == 152
    assert ask(tools, "logs deploy/geo")[0] == "empty"
    assert ask(tools, "logs deploy/user --previous")[0] == "absent"


def test_tail_since_and_containers_choose_lines(tools: EpisodeTools) -> None:
    pod = ask(tools, "get pods -l io.kompose.service=frontend -o name")[1][0]
    assert len(ask(tools, f"logs {pod} --tail=5")[1]) == 5
    assert 0 < len(ask(tools, f"logs {pod} --since=5s")[1]) < len(ask(tools, f"logs {pod} --since=1m")[1])
    assert ask(tools, f"logs {pod} -c nothing")[0] == "absent"
    assert ask(tools, f"logs {pod} -c hotel-reserv-frontend --tail 1")[0] == "ok"


def test_top_shows_use_from_the_metrics(tools: EpisodeTools) -> None:
    _, lines = ask(tools, "top pods --sort-by=cpu")
    assert lines[0].split() == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    cores = [int(line.split()[1].rstrip("m")) for line in lines[1:]]
    assert cores == sorted(cores, reverse=True)
    assert cores[0] > 0
    assert ask(tools, "top nodes")[0] == "not_recorded"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("delete pod geo", "refused"), ("exec -it geo -- sh", "refused"), ("apply -f x.yaml", "refused"),
        ("-n hotel patch svc geo -p '{}'", "refused"), ("rollout restart deploy/geo", "refused"),
        ("logs -f deploy/geo", "refused"),
        ("get pods -w", "refused"), ("get podchaos", "refused"), ("get networkchaos.chaos-mesh.org -A", "refused"),
        ("get pods -n chaos-mesh", "refused"), ("get pods && ls", "refused"), ("get pods | sh", "refused"),
        ("get nodes", "not_recorded"), ("get secrets", "not_recorded"), ("get pods -n kube-system", "not_recorded"),
        ("get cm hotel-config -o yaml", "not_recorded"), ("describe cm hotel-config", "not_recorded"),
        ("get pods -l app=geo", "not_recorded"), ("get pod -o jsonpath='{.items[*].spec.hostNetwork}'", "not_recorded"),
        ("version", "not_recorded"), ("get ns", "not_recorded"),
        ("get pods nothing", "absent"), ("logs nothing", "absent"), ("describe svc nothing", "absent"),
        ("events --types=Warning", "empty"), ("get pods | grep nothing", "empty"),
        ("frobnicate", "invalid"), ("get", "invalid"), ("get pods --colour", "invalid"),
        ("get pods -o toml", "invalid"), ("get pods geo -l a=b", "invalid"),
        ("get pods | grep '('  -E", "invalid"), ("logs deploy/geo --since=soon", "invalid"), ("get 'pods", "invalid"),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_says_why(tools: EpisodeTools, command: str, status: str) -> None:
    assert ask(tools, command)[0] == status


START = 1_760_000_000_000_000_000
SECOND = 1_000_000_000
TEXTS = {"flags.json": '{\n "slow": "off"\n}\n', "level": "info"}


def row(at_s: int, digest: str, texts: dict[str, str] | None) -> dict[str, object]:
    data = None if texts is None else json.dumps(texts)
    state = json.dumps({"digest": digest})
    return {
        "kind": "ConfigMap", "name": "settings", "service": None, "state": state, "data": data,
        "time": START + at_s * SECOND,
    }  # fmt: skip


@pytest.fixture
def config_tools(write_episode) -> EpisodeTools:
    later = TEXTS | {"level": "debug"}
    path = write_episode("c0", start_ns=START, objects=[row(1, "a", TEXTS), row(11, "a", TEXTS), row(12, "b", later)])
    return EpisodeTools(EpisodeView(path))


def kubectl(tools: EpisodeTools, command: str) -> str:
    answer = tools.call("kubectl", {"command": command})
    assert answer.status == "ok", answer.text
    return answer.text.rpartition("\n[")[0]


def test_kubectl_shows_the_texts_as_blocks_in_yaml(config_tools: EpisodeTools) -> None:
    shown = kubectl(config_tools, "kubectl get configmap settings -o yaml")
    assert yaml.safe_load(shown)["data"] == TEXTS | {"level": "debug"}
    assert "  flags.json: |\n" in shown
    assert kubectl(config_tools, "kubectl get cm settings -o jsonpath='{.data.level}'") == "debug"
    assert kubectl(config_tools, "kubectl get cm").splitlines()[1].split()[:2] == ["settings", "2"]


def test_kubectl_describes_the_texts(config_tools: EpisodeTools) -> None:
    described = kubectl(config_tools, "kubectl describe cm settings")
    assert 'flags.json:\n----\n{\n "slow": "off"\n}' in described
    assert "level:\n----\ndebug" in described


def test_an_object_has_its_texts_of_then_and_lists_leave_them_out(config_tools: EpisodeTools) -> None:
    tools = config_tools
    now = tools.call("get_object", {"kind": "ConfigMap", "name": "settings"}).text
    assert "level: debug" in now
    left_s = (tools.clock.now_ns - START) / SECOND - 11.5
    before = tools.call("get_object", {"kind": "ConfigMap", "name": "settings", "seconds_ago": left_s}).text
    assert "level: info" in before
    listed = tools.call("list_objects", {"kind": "ConfigMap"}).text
    assert "digest" in listed
    assert "slow" not in listed


def test_what_was_not_recorded_is_not_made_up(write_episode) -> None:
    tools = EpisodeTools(EpisodeView(write_episode("c1", start_ns=START, objects=[row(1, "a", None)])))
    for command in ("kubectl get cm settings -o yaml", "kubectl describe cm settings"):
        assert tools.call("kubectl", {"command": command}).status == "not_recorded"
