// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Authorization, Authorizations} from "../../src/gateway/Authorizations.sol";
import {Batches} from "../../src/gateway/Batches.sol";
import {GatewayTest} from "../support/GatewayTest.sol";
import {Account} from "../support/Signer.sol";
import {Vm, vm} from "../support/Vm.sol";

/// Netting is only a way to write less: whatever the order and the batching, everyone ends with the same balance.
contract NettingTest is GatewayTest {
    uint256 private constant PAYMENTS = 12;

    Account[] private people;

    function setUp() public override {
        super.setUp();
        people.push(alice);
        people.push(bob);
        people.push(seller);
        people.push(mallory);
        // Each has enough for all payments together, so that no order can make one of them fail.
        for (uint256 i = 0; i < people.length; ++i) {
            _deposit(people[i], PAYMENTS * USDC);
        }
    }

    /// hardhat-config: fuzz.runs = 32
    function test_orderAndBatchingDoNotMatter(uint256 paymentSeed, uint256 orderSeed, uint16 cuts) public {
        Authorization[] memory rows = _payments(paymentSeed);

        uint256 start = vm.snapshotState();
        _settle(rows);
        uint256[] memory together = _balances();
        vm.revertToState(start);

        _settleInBatches(_shuffled(rows, orderSeed), cuts);
        uint256[] memory apart = _balances();

        for (uint256 i = 0; i < people.length; ++i) {
            vm.assertEq(apart[i], together[i], "the batching changed a balance");
        }
    }

    /// hardhat-config: fuzz.runs = 32
    function test_theChangesOfABatchSumToZero(uint256 paymentSeed) public {
        vm.recordLogs();
        _settle(_payments(paymentSeed));
        Vm.Log[] memory logs = vm.getRecordedLogs();
        int256 sum = 0;
        for (uint256 i = 0; i < logs.length; ++i) {
            bytes32 topic = logs[i].topics[0];
            if (topic == Batches.PayeeCredited.selector) sum += int256(abi.decode(logs[i].data, (uint256)));
            if (topic != Authorizations.PaymentSettled.selector) continue;
            (, uint256 value) = abi.decode(logs[i].data, (bytes32, uint256));
            sum -= int256(value);
        }
        vm.assertEq(sum, 0, "a batch made or lost money");
    }

    function test_paymentsToOnePayeeAreCreditedOnce() public {
        vm.recordLogs();
        _settle(_rows(_pay(alice, seller.addr, 1, 1), _pay(bob, seller.addr, 2, 2), _pay(alice, seller.addr, 3, 3)));
        vm.assertEq(_count(vm.getRecordedLogs(), Batches.PayeeCredited.selector), 1, "one credit");
    }

    // A circle in which each can only pay with what the one before has just paid.
    function test_moneyMayGoRoundWithinABatch() public {
        Account memory carol = alice;
        gateway = _newGateway();
        _deposit(carol, 5);
        _settle(_rows(_pay(carol, bob.addr, 5, 1), _pay(bob, seller.addr, 5, 1), _pay(seller, carol.addr, 5, 1)));
        vm.assertEq(_available(carol.addr), 5);
        vm.assertEq(_total(bob.addr) + _total(seller.addr), 0);
    }

    function _payments(uint256 seed) private view returns (Authorization[] memory rows) {
        rows = new Authorization[](PAYMENTS);
        for (uint64 i = 0; i < PAYMENTS; ++i) {
            uint256 random = uint256(keccak256(abi.encode(seed, i)));
            uint256 from = random % people.length;
            uint256 to = (from + 1 + (random >> 8) % (people.length - 1)) % people.length;
            rows[i] = _pay(people[from], people[to].addr, 1 + (random >> 16) % USDC, i);
        }
    }

    function _shuffled(Authorization[] memory rows, uint256 seed) private pure returns (Authorization[] memory) {
        for (uint256 i = rows.length - 1; i > 0; --i) {
            uint256 j = uint256(keccak256(abi.encode(seed, i))) % (i + 1);
            (rows[i], rows[j]) = (rows[j], rows[i]);
        }
        return rows;
    }

    /// Ends a batch after each row whose bit is set in `cuts`.
    function _settleInBatches(Authorization[] memory rows, uint16 cuts) private {
        uint256 from = 0;
        for (uint256 i = 0; i < rows.length; ++i) {
            bool last = i == rows.length - 1;
            if (!last && cuts & (1 << i) == 0) continue;
            Authorization[] memory batch = new Authorization[](i + 1 - from);
            for (uint256 j = 0; j < batch.length; ++j) {
                batch[j] = rows[from + j];
            }
            _settle(batch);
            from = i + 1;
        }
    }

    function _balances() private view returns (uint256[] memory balances) {
        balances = new uint256[](people.length);
        for (uint256 i = 0; i < people.length; ++i) {
            balances[i] = _available(people[i].addr);
        }
    }

    function _count(Vm.Log[] memory logs, bytes32 topic) private pure returns (uint256 count) {
        for (uint256 i = 0; i < logs.length; ++i) {
            if (logs[i].topics[0] == topic) ++count;
        }
    }
}
