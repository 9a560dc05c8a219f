"""The API server may be away, busy, forgetful of tokens, or say no: what our requests make of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.platforms.kubernetes.client import Api, Conflict, NotFound, parse_exit_code
from faultset.core.errors import PlatformError


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "message": message, "status": "Failure"}


def _config(folder: Path, server: str) -> str:
    path = folder / "kubeconfig"
    path.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, "
        f"clusters: [{{name: k, cluster: {{server: '{server}'}}}}], "
        "users: [{name: u, user: {token: secret}}], contexts: [{name: c, context: {cluster: k, user: u}}]}"
    )
    return str(path)


class Server:
    """Sends the given responses in turn, then repeats the last one."""

    def __init__(self, refused: type[Exception], *answers: Any):
        self.answers, self.refused, self.asked = list(answers), refused, 0

    def __call__(self, method: str, path: str, params: dict[str, list[str]], body: bytes) -> Any:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, int):
            raise self.refused(answer, _status(answer, f"message of {answer}"))  # type: ignore[call-arg]
        return answer


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(
    code: int, serve: Callable[..., Any], refused: type[Exception], tmp_path: Path
) -> None:
    server = Server(refused, code, {"kind": "Pod"})
    assert Api(_config(tmp_path, serve(server).url)).get("/api/v1/x") == {"kind": "Pod"}
    assert server.asked == 2


def test_a_token_that_has_expired_is_read_again(
    serve: Callable[..., Any], refused: type[Exception], tmp_path: Path
) -> None:
    server = Server(refused, 401, {"kind": "Pod"})
    made = serve(server)
    config = _config(tmp_path, made.url)
    api = Api(config)
    Path(config).write_text(Path(config).read_text().replace("secret", "renewed"))
    api.get("/api/v1/x")
    assert [headers.get("authorization") or headers.get("Authorization") for headers in made.headers] == [
        "Bearer secret",
        "Bearer renewed",
    ]


def test_a_refusal_of_credentials_is_one_sentence(
    serve: Callable[..., Any], refused: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(PlatformError, match=r"rejects the kubeconfig's credentials .* log in again"):
        Api(_config(tmp_path, serve(Server(refused, 401)).url)).get("/api/v1/x")


def test_a_forbidden_verb_is_named_with_what_to_do(
    serve: Callable[..., Any], refused: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(PlatformError, match=r"forbids a required operation: message of 403; grant the role"):
        Api(_config(tmp_path, serve(Server(refused, 403)).url)).get("/api/v1/x")


def test_missing_and_conflicting_objects_have_errors_of_their_own(
    serve: Callable[..., Any], refused: type[Exception], tmp_path: Path
) -> None:
    server = Server(refused, 404)
    api = Api(_config(tmp_path, serve(server).url))
    with pytest.raises(NotFound):
        api.get("/api/v1/x")
    server.answers = [409]
    with pytest.raises(Conflict):
        api.post("/api/v1/x", {})


def test_a_server_that_cannot_be_reached_is_waited_for_and_then_named(tmp_path: Path) -> None:
    api = Api(_config(tmp_path, "http://127.0.0.1:9"), retry_timeout_s=0.3)
    with pytest.raises(
        PlatformError, match=r"cannot reach the cluster's API server http://127.0.0.1:9 .* check the kubeconfig"
    ):
        api.get("/version")
    assert api.requests["GET"] >= 2


def test_without_a_kubeconfig_one_sentence_says_where_to_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(PlatformError, match="set KUBECONFIG or write"):
        Api()
    with pytest.raises(PlatformError, match="kubeconfig"):
        Api(str(tmp_path / "other"))


def test_a_context_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="kubeconfig"):
        Api(_config(tmp_path, "http://127.0.0.1:9"), context="production")


WHERE = "faultset-store in pod postgresql-0"


def failed(message: str, cause: dict[str, str] | None = None) -> str:
    return json.dumps({"status": "Failure", "message": message, "details": {"causes": [cause] if cause else []}})


def test_the_code_is_that_of_the_command() -> None:
    assert parse_exit_code(json.dumps({"metadata": {}, "status": "Success"}), WHERE) == 0
    ended = failed("command terminated with non-zero exit code", {"reason": "ExitCode", "message": "4"})
    assert parse_exit_code(ended, WHERE) == 4


def test_a_container_that_does_not_run_is_one_sentence() -> None:
    text = 'unable to upgrade connection: container not found ("postgresql")'
    for status in (failed("internal error: " + text, {"message": text}), failed(text), failed("", {"message": text})):
        with pytest.raises(PlatformError, match=r"in pod postgresql-0 could not be started: .*not found"):
            parse_exit_code(status, WHERE)


@pytest.mark.parametrize("status", ["", "no JSON", "[]", '{"status": "Failure"}', '{"kind": "Status"}', "null"])
def test_an_end_that_nobody_tells_is_one_sentence(status: str) -> None:
    with pytest.raises(PlatformError, match="ended without an exit code"):
        parse_exit_code(status, WHERE)
