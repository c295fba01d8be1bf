// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {SettlementGateway} from "../../src/SettlementGateway.sol";
import {Authorization} from "../../src/gateway/Authorizations.sol";
import {BurnIntent} from "../../src/gateway/BurnIntent.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";
import {GatewayTest} from "../support/GatewayTest.sol";
import {HostileUsdc} from "../support/HostileUsdc.sol";
import {Signer} from "../support/Signer.sol";
import {vm} from "../support/Vm.sol";

/// USDC calls nobody back. Should it ever, as a token with hooks does, the gateway is closed while the token runs. Here
/// the token is Mallory's, has money at the gateway itself, and re-enters from the middle of every transfer.
contract ReentrancyTest is GatewayTest {
    using Signer for BurnIntent;

    SettlementGateway private fooled;
    HostileUsdc private token;

    function setUp() public override {
        super.setUp();
        token = new HostileUsdc();
        fooled = _newGateway(address(token), WITHDRAWAL_DELAY);
        token.approveAll(address(fooled));
        token.mint(alice.addr, 200 * USDC);
        token.mint(bob.addr, 100 * USDC);
        vm.prank(alice.addr);
        fooled.deposit(address(token), 100 * USDC);
        vm.prank(bob.addr);
        fooled.depositFor(address(token), address(token), 100 * USDC);
    }

    function test_attack_withdrawDoesNotLetTheTokenBackIn() public {
        vm.prank(alice.addr);
        fooled.initiateWithdrawal(address(token), 100 * USDC);
        vm.roll(BLOCK + WITHDRAWAL_DELAY);
        for (uint256 way = 0; way < 6; ++way) {
            uint256 start = vm.snapshotState();
            token.callOnTransfer(address(fooled), _wayIn(way));
            vm.prank(alice.addr);
            fooled.withdraw(address(token));
            _assertKeptOut();
            vm.assertEq(fooled.totalBalance(address(token), alice.addr), 0);
            vm.revertToState(start);
        }
    }

    function test_attack_depositDoesNotLetTheTokenBackIn() public {
        for (uint256 way = 0; way < 6; ++way) {
            uint256 start = vm.snapshotState();
            token.callOnTransfer(address(fooled), _wayIn(way));
            vm.prank(alice.addr);
            fooled.deposit(address(token), 100 * USDC);
            _assertKeptOut();
            vm.assertEq(fooled.totalBalance(address(token), alice.addr), 200 * USDC);
            vm.revertToState(start);
        }
    }

    function test_attack_instantWithdrawDoesNotLetTheTokenBackIn() public {
        BurnIntent memory intent = _intent(alice.addr, alice.addr, 100 * USDC, "salt");
        intent.spec.sourceContract = _padded(address(fooled));
        intent.spec.destinationContract = _padded(address(fooled));
        intent.spec.sourceToken = _padded(address(token));
        intent.spec.destinationToken = _padded(address(token));
        bytes memory signature = intent.intentSignature(alice.key);

        for (uint256 way = 0; way < 6; ++way) {
            uint256 start = vm.snapshotState();
            token.callOnTransfer(address(fooled), _wayIn(way));
            vm.prank(relayer.addr);
            fooled.instantWithdraw(intent, signature);
            _assertKeptOut();
            vm.assertEq(fooled.totalBalance(address(token), alice.addr), 0);
            vm.revertToState(start);
        }
    }

    function _wayIn(uint256 way) private view returns (bytes memory) {
        BurnIntent memory intent;
        if (way == 0) return abi.encodeCall(fooled.withdraw, (address(token)));
        if (way == 1) return abi.encodeCall(fooled.initiateWithdrawal, (address(token), USDC));
        if (way == 2) return abi.encodeCall(fooled.deposit, (address(token), USDC));
        if (way == 3) return abi.encodeCall(fooled.depositFor, (address(token), mallory.addr, USDC));
        if (way == 4) return abi.encodeCall(fooled.settleBatch, (1, RECEIPT_ROOT, new Authorization[](0)));
        return abi.encodeCall(fooled.instantWithdraw, (intent, ""));
    }

    function _assertKeptOut() private view {
        vm.assertEq(token.callSucceeded(), false);
        bytes4 refusal = ReentrancyGuard.ReentrancyGuardReentrantCall.selector;
        vm.assertEq(bytes32(token.callResult()), bytes32(refusal));
    }
}
