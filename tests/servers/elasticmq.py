"""ElasticMQ, which speaks the protocol of SQS, from Maven. `FAIRLANE_TEST_SQS_URL` replaces it.

With `keeps_data` its queues and messages survive `restart()`, but not always `restart(kill=True)`, since it writes
late.
"""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path
from typing import ClassVar

from tests.servers import install as packages
from tests.servers.base import Server, which
from tests.servers.process import Program

VERSION = "1.7.1"
FOLDER = f"elasticmq-{VERSION}"
POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fairlane.tests</groupId>
  <artifactId>elasticmq</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.elasticmq</groupId>
      <artifactId>elasticmq-server_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


class ElasticMQ(Server):
    name: ClassVar[str] = "elasticmq"
    variable: ClassVar[str] = "FAIRLANE_TEST_SQS_URL"
    hint: ClassVar[str] = "install Java >= 11 and Maven, which fetches it, or set FAIRLANE_TEST_SQS_URL"

    keeps_data: ClassVar[tuple[str, ...]] = (
        *("-Dqueues-storage.enabled=true", "-Dqueues-storage.path={folder}/queues.conf"),
        *("-Dmessages-storage.enabled=true", "-Dmessages-storage.uri=jdbc:h2:{folder}/messages"),
    )

    @classmethod
    def find(cls) -> Program | None:
        java = which("java")
        return Program(java) if java and libraries().exists() else None

    @classmethod
    def install(cls) -> None:
        if cls.find() is not None:
            return
        if which("java") is None or (shutil.which("mvn") is None and not libraries().exists()):
            packages.install_debian(["default-jre-headless", "maven"], f"Maven is missing: {cls.hint}")

        def fill(new: Path) -> None:
            (new / "pom.xml").write_text(POM)
            options = ["-q", "-B", f"-DoutputDirectory={new / 'lib'}"]
            if not os.access(pwd.getpwuid(os.getuid()).pw_dir, os.W_OK):  # no place for Maven's own folder
                options.append(f"-Dmaven.repo.local={new / 'repository'}")
            packages.run("mvn", *options, "dependency:copy-dependencies", cwd=new)
            shutil.rmtree(new / "repository", ignore_errors=True)

        packages.into(FOLDER, fill)
        cls.found()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"sqs://any:any@elasticmq/?endpoint={self.endpoint}"

    def arguments(self) -> list[str]:
        return [
            # Starts fast and needs little memory.
            *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m", "-Djava.net.preferIPv4Stack=true"),
            *("-cp", f"{libraries()}/*"),
            *("-Dnode-address.host=127.0.0.1", f"-Dnode-address.port={self.port}"),
            *("-Drest-sqs.bind-hostname=127.0.0.1", f"-Drest-sqs.bind-port={self.port}"),
            "-Drest-stats.enabled=false",
            *(arg.replace("{folder}", str(self.folder)) for arg in self.args),
            "org.elasticmq.server.Main",
        ]

    def is_ready(self) -> bool:
        return "=== ElasticMQ server" in self.log()


def libraries() -> Path:
    return packages.folder() / FOLDER / "lib"


find = ElasticMQ.find
install = ElasticMQ.install
private = ElasticMQ.private
